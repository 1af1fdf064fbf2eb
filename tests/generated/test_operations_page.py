"""docs/operations.md says what the metrics and the alerts are."""

from pathlib import Path

import yaml

from controller.metrics import reference

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
RULES = ROOT / "deploy" / "alerts" / "tonnage.rules.yaml"


def test_the_table_of_metrics_is_the_one_in_the_code() -> None:
    _, _, rest = PAGE.partition("a test compares -->")
    table, _, _ = rest.partition("<!-- end -->")

    assert table.strip() == reference().strip(), "the metrics changed: put `python -m controller.metrics` into the page"


def test_every_alert_has_its_section_and_points_to_it() -> None:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    alerts = [rule for group in groups for rule in group["rules"]]
    sections = [line.removeprefix("### ") for line in PAGE.splitlines() if line.startswith("### ")]

    assert sections == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        _, _, section = PAGE.partition(f"### {rule['alert']}\n")
        assert section.strip().lower().startswith(rule["labels"]["severity"])
