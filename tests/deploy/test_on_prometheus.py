"""Every expression of the dashboards and alerts, asked of a real Prometheus that scrapes a loop under load."""

import json
import subprocess
import time
from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest

from controller.metrics.registry import Meter, metrics_endpoint
from controller.metrics.table import METRICS
from deploy.dashboards.generate import BOARDS
from tests.deploy.answers import alert_lacks, panel_lacks, variable_lacks
from tests.deploy.expressions import ALERTS, ANNOTATIONS, DEPLOY, PANELS, RULES, VARIABLES, filled_in
from tests.deploy.load import Load
from tests.deploy.prometheus import Prometheus, running_prometheus, tool, until

CYCLES = 40
"""Enough that every counter has moved and every fault has happened; Prometheus scrapes in between."""
RATES = [name for name, expression in PANELS.items() if "rate(" in expression]
SCRAPES = 5
"""A rate needs two."""
LOST_SCRAPES_S = 10.0
"""After a scrape that is lost on a busy machine, nothing has a present value until the next."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    meter = Meter()
    load = Load(meter, time.time)
    # The metrics carry Prometheus' own time, so this clock must be the true one.
    with (
        metrics_endpoint(meter, "127.0.0.1", 0) as port,
        running_prometheus(tmp_path_factory.mktemp("prometheus"), port, RULES) as server,
    ):
        for _ in range(CYCLES):
            load.step()

        def enough() -> bool:
            load.step()
            # One name at a time: without their names, two counters without labels would be one series.
            counters = {each["metric"]["__name__"] for each in server.query("{__name__=~'tonnage_.+_total'}")}
            seen = [server.query(f"min(count_over_time({name}[5m])) >= {SCRAPES}") for name in sorted(counters)]
            # A rate is of what happens while it is scraped: what all happened before the first scrape has none.
            return bool(seen) and all(seen) and not any(panel_lacks(server, name) for name in RATES)

        until(enough, f"{SCRAPES} scrapes of every counter, and something in every rate")
        yield server


@pytest.mark.parametrize("name", PANELS)
def test_every_panel_shows_something(prometheus: Prometheus, name: str) -> None:
    until(lambda: not panel_lacks(prometheus, name), f"data of the panel {name}", within_s=LOST_SCRAPES_S)


@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_offers_a_choice(prometheus: Prometheus, name: str) -> None:
    until(lambda: not variable_lacks(prometheus, name), f"choice of the variable {name}", within_s=LOST_SCRAPES_S)


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_watches_something_that_exists(prometheus: Prometheus, name: str) -> None:
    """An alert that is silent because its metric is misspelt looks like one that is silent because all is well."""
    until(lambda: not alert_lacks(prometheus, name), f"series of the alert {name}", within_s=LOST_SCRAPES_S)


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_every_annotation_is_an_expression_that_the_server_takes(prometheus: Prometheus, name: str) -> None:
    """Nothing changed while the test runs, so it is empty; a mistake in it is refused."""
    assert isinstance(prometheus.query(filled_in(ANNOTATIONS[name])), list)


def test_the_server_evaluates_the_rules_without_error(prometheus: Prometheus) -> None:
    def evaluated() -> list[dict[str, str]]:
        data = prometheus.get("/api/v1/rules")
        assert isinstance(data, dict)
        return [rule for group in data["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] != "unknown" for rule in evaluated()), "the rules are evaluated")

    assert {rule["name"]: rule.get("lastError", "") for rule in evaluated()} == dict.fromkeys(ALERTS, "")


def test_every_metric_of_the_table_is_on_a_dashboard_or_in_an_alert() -> None:
    asked = " ".join([*PANELS.values(), *ALERTS.values()])

    assert [metric.name for metric in METRICS if metric.name not in asked] == []


def test_promtool_finds_nothing_to_say_about_the_metrics() -> None:
    meter = Meter()
    load = Load(meter, now_s=lambda: 1000.0)
    for _ in range(10):
        load.step()

    check = subprocess.run(  # noqa: S603
        [tool("promtool"), "check", "metrics"], input=generate_latest(meter.registry), capture_output=True, check=False
    )

    assert (check.returncode, check.stdout + check.stderr) == (0, b"")


def test_promtool_accepts_the_rules() -> None:
    check = subprocess.run(  # noqa: S603
        [tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(RULES)], capture_output=True, check=False
    )

    assert check.returncode == 0, check.stderr.decode()


def test_the_files_hold_the_expressions_that_were_tested() -> None:
    files = (DEPLOY / "dashboards" / f"{board.name}.json" for board in BOARDS)
    held = {
        target["expr"]
        for file in files
        for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]
        for target in panel.get("targets", ())
    }

    assert held == set(PANELS.values())
