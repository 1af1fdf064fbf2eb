"""Copies in the chart are up to date: CRDs, dashboards, alerts, settings and rights."""

from controller.api.rbac import roles_yaml
from deploy.chart_files import README, ROLES, SCHEMA, SOURCES, copies, present, readme_text, schema


def test_the_chart_holds_the_crds_dashboards_and_alerts_of_this_version() -> None:
    assert present() == copies(), "CRDs, dashboards or alerts changed: run `make chart`"


def test_the_chart_leaves_none_of_them_out() -> None:
    assert {path.parent for path in copies()} == set(SOURCES)


def test_the_chart_takes_the_settings_that_the_operator_has() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "the operator's settings changed: run `make chart`"


def test_the_chart_grants_the_rights_that_follow_from_the_kinds() -> None:
    assert ROLES.read_text(encoding="utf-8") == roles_yaml(), "the kinds or their rights changed: run `make chart`"


def test_the_readme_of_the_chart_has_its_values() -> None:
    text = README.read_text(encoding="utf-8")

    assert text == readme_text(), "the chart's values changed: run `make chart`"
    assert '| `ray.mode` | `"embedded"` | embedded: on a private Ray in the controller' in text
