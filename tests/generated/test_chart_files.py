"""What is made from code in the chart is up to date: settings and rights."""

from controller.api.rbac import roles_yaml
from deploy.chart_files import README, ROLES, SCHEMA, readme_text, schema


def test_the_chart_takes_the_settings_that_the_operator_has() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "the operator's settings changed: run `make chart`"


def test_the_chart_grants_the_rights_that_follow_from_the_kinds() -> None:
    assert ROLES.read_text(encoding="utf-8") == roles_yaml(), "the kinds or their rights changed: run `make chart`"


def test_the_readme_of_the_chart_has_its_values() -> None:
    text = README.read_text(encoding="utf-8")

    assert text == readme_text(), "the chart's values changed: run `make chart`"
    assert '| `ray.mode` | `"embedded"` | embedded: on a private Ray in the controller' in text
