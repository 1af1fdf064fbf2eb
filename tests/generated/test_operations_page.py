"""docs/operations.md lists the log lines, metrics, dashboards and alerts that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from controller.metrics.table import reference

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
RULES = ROOT / "deploy" / "alerts" / "tonnage.rules.yaml"


def test_the_table_of_metrics_is_the_one_in_the_code() -> None:
    _, _, rest = PAGE.partition("a test compares -->")
    table, _, _ = rest.partition("<!-- end -->")

    assert table.strip() == reference().strip(), (
        "the metrics changed: put `python -m controller.metrics.table` into the page"
    )


def test_every_metric_that_a_page_of_docs_names_is_one_of_the_operator_or_of_the_agent() -> None:
    agent = (ROOT / "nodeagent" / "metrics.py").read_text(encoding="utf-8")
    of_agent = (f"tonnage_agent_{name}" for name in re.findall(r'_(?:gauge|counter)\("(\w+)"', agent))
    known = {*re.findall(r"\btonnage_\w+", reference()), *of_agent}
    suffixes = ("", "_total", "_bucket", "_sum", "_count")
    named = {
        f"{page.name}: {name}"
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"\btonnage_\w*[a-z]\b(?!\.)", page.read_text(encoding="utf-8"))
        if not any(name.removesuffix(suffix) in known for suffix in suffixes)
    }

    assert named == set()


def test_every_dashboard_is_listed_once() -> None:
    _, _, rest = PAGE.partition("## Dashboards\n")
    section, _, _ = rest.partition("\n## ")

    listed = sorted(re.findall(r"^\| `(\w+\.json)`", section, re.MULTILINE))

    assert listed == sorted(each.name for each in (ROOT / "deploy" / "dashboards").glob("*.json"))


def test_every_alert_has_its_section_and_points_to_it() -> None:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    alerts = [rule for group in groups for rule in group["rules"]]
    sections = [line.removeprefix("### ") for line in PAGE.splitlines() if line.startswith("### ")]

    assert sections == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"
        _, _, section = PAGE.partition(f"### {rule['alert']}\n")
        assert section.strip().lower().startswith(rule["labels"]["severity"])


def test_every_sentence_of_the_log_is_in_the_page_and_every_one_of_the_page_in_the_code() -> None:
    _, _, rest = PAGE.partition("## Logs\n")
    section, _, _ = rest.partition("\n## ")
    events = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    told = {event for cell in events for event in re.findall(r"`([^`]+)`", cell)} - {"event"}

    assert told == set(_logged())


def _logged() -> Iterator[str]:
    """First words of every call of a log's method, and the words of every `repeat`, in what runs on a cluster."""
    files = [path for folder in ("controller", "nodeagent", "power") for path in (ROOT / folder).rglob("*.py")]
    for path in [*files, ROOT / "cli" / "verbs" / "operator.py"]:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            repeated = isinstance(call.func, ast.Name) and call.func.id == "repeat"  # logs its last words on errors
            if not repeated and not _is_of_a_log(call.func):
                continue
            words = call.args[-1 if repeated else 0]
            yield from (each.value for each in ast.walk(words) if isinstance(each, ast.Constant) and each.value)


def _is_of_a_log(function: ast.expr) -> bool:
    """`log.info`, `self._log.warning`, `(log.info if happened else log.debug)`."""
    if isinstance(function, ast.IfExp):
        return _is_of_a_log(function.body)
    levels = ("debug", "info", "warning", "error", "exception")
    return isinstance(function, ast.Attribute) and function.attr in levels and "log" in ast.unparse(function.value)
