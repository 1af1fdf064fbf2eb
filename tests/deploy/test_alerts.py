"""Each alert fires while its condition holds and clears afterwards: unit tests by promtool."""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from tests.deploy.prometheus import tool

RULES = Path(__file__).parents[2] / "deploy" / "alerts" / "tonnage.rules.yaml"

ILL, WELL, END = 30, 150, 250
"""Minutes: well before ILL, ill until WELL, well to the END; longer than any `for` or window of the rules (1 h)."""

Series = Callable[[int], str]
"""The value at a minute, as promtool writes it; `_` for none."""


def gauge(well: float, ill: float | str) -> Series:
    return lambda minute: str(ill if ILL <= minute < WELL else well)


def counter(well: float, ill: float) -> Series:
    """Steps per minute."""
    return lambda minute: str(well * minute + (ill - well) * (min(max(minute, ILL), WELL) - ILL))


def stopped_clock(minute: int) -> str:
    """A time stamp that is now, but stands still while ill; promtool's clock starts at 0."""
    return str(60 * (ILL if ILL <= minute < WELL else minute) + 1)


@dataclass(frozen=True)
class Story:
    alert: str
    series: Mapping[str, Series]
    labels: Mapping[str, str] = field(default_factory=lambda: {"job": "t"})


def replicas(a: Series, b: Series) -> dict[str, Series]:
    return {'tonnage_leader{job="t", instance="a"}': a, 'tonnage_leader{job="t", instance="b"}': b}


def killed(what: str) -> str:
    return f'tonnage_sandbox_happenings_total{{job="t", policy="coders", what="{what}", reason="OUTGREW_CLAIM"}}'


CYCLES, ACTIONS, REQUESTS = "tonnage_cycles_total", "tonnage_actions_total", "tonnage_api_requests_total"
INSTANCES = 'tonnage_service_instances{job="t", model_service="ns/chat", instance_type="A100"'

ROW = 'job="t", power_domain="row"'
IN_ROW = {"job": "t", "power_domain": "row"}
BUDGET = f"tonnage_power_budget_watts{{{ROW}}}"

STORIES = (
    Story("TonnageNoLeader", replicas(gauge(1, 0), gauge(0, 0)), {}),
    Story("TonnageNoLeader", replicas(gauge(1, "_"), gauge(0, "_")), {}),
    # Sixteen tasks are open, and none ends.
    Story(
        "TonnageBackgroundStalled",
        {
            'tonnage_background_tasks_open{job="t"}': gauge(0, 16),
            'tonnage_background_tasks_total{job="t", kind="load_fits", result="done"}': counter(0, 0),
        },
    ),
    Story("TonnageTwoLeaders", replicas(gauge(1, 1), gauge(0, 1))),
    Story("TonnageLoopStalled", {'tonnage_last_cycle_timestamp_seconds{job="t"}': stopped_clock}),
    # Nine of ten cycles are blind.
    Story(
        "TonnageBlind",
        {f'{CYCLES}{{job="t", result="quiet"}}': counter(10, 1), f'{CYCLES}{{job="t", result="blind"}}': counter(0, 9)},
    ),
    Story("TonnageCycleFailed", {f'{CYCLES}{{job="t", result="failed"}}': counter(0, 1)}),
    Story(
        "TonnageDeciderFailed",
        {'tonnage_decider_failures_total{job="t", decider="packing"}': counter(0, 1)},
    ),
    # Every cycle takes between 2 and 5 s.
    Story(
        "TonnageCyclesSlow",
        {
            'tonnage_cycle_seconds_bucket{job="t", le="2.0"}': counter(10, 0),
            'tonnage_cycle_seconds_bucket{job="t", le="5.0"}': counter(10, 10),
            'tonnage_cycle_seconds_bucket{job="t", le="+Inf"}': counter(10, 10),
        },
    ),
    Story(
        "TonnageSightOld",
        {'tonnage_observed_timestamp_seconds{job="t", part="pods"}': stopped_clock},
        {"job": "t", "part": "pods"},
    ),
    # Two of ten fail.
    Story(
        "TonnageActionsFail",
        {
            f'{ACTIONS}{{job="t", action="Bind", result="done"}}': counter(10, 8),
            f'{ACTIONS}{{job="t", action="Bind", result="failed"}}': counter(0, 2),
        },
    ),
    Story(
        "TonnageActionStuck",
        {f'{ACTIONS}{{job="t", action="Bind", result="stuck"}}': counter(0, 1)},
        {"job": "t", "action": "Bind"},
    ),
    Story(
        "TonnageGuardRefuses",
        {'tonnage_guard_refusals_total{job="t", reason="StaleEvidence"}': counter(0, 1)},
        {"job": "t", "reason": "StaleEvidence"},
    ),
    # One request in ten stays unanswered.
    Story(
        "TonnageApiErrors",
        {
            f'{REQUESTS}{{job="t", verb="create", code="201"}}': counter(100, 90),
            f'{REQUESTS}{{job="t", verb="create", code="none"}}': counter(0, 10),
        },
    ),
    Story("TonnageStopsInVain", {'tonnage_unplaced{job="t", reason="OutOfStops"}': gauge(0, 1)}),
    Story(
        "TonnageWorkloadWaits",
        {'tonnage_oldest_pending_seconds{job="t", kind="gang"}': gauge(60, 14_401)},
        {"job": "t", "kind": "gang"},
    ),
    Story(
        "TonnageServiceUnplanned",
        {'tonnage_service_unplanned{job="t", model_service="ns/odd", reason="NoProfile"}': gauge("_", 1)},  # type: ignore[arg-type]
        {"job": "t", "model_service": "ns/odd", "reason": "NoProfile"},
    ),
    Story(
        "TonnageServiceShort",
        {f'{INSTANCES}, state="wanted"}}': gauge(2, 2), f'{INSTANCES}, state="running"}}': gauge(2, 1)},
        {"job": "t", "model_service": "ns/chat"},
    ),
    *(
        Story(alert, {f"tonnage_power_{name}_watts{{{ROW}}}": gauge(well, ill), BUDGET: gauge(1000, 1000)}, IN_ROW)
        for alert, name, well, ill in (
            ("TonnagePowerOverBudget", "worst", 1000, 1010),
            ("TonnagePowerDrawOverBudget", "draw", 990, 1001),
            ("TonnagePowerHeadroomLow", "headroom", 30, 10),
        )
    ),
    *(
        Story(alert, {f'tonnage_power_devices{{{ROW}, state="{state}"}}': gauge(0, 1)}, IN_ROW)
        for alert, state in (("TonnagePowerStale", "stale"), ("TonnagePowerDisobeyed", "disobedient"))
    ),
    Story("TonnagePowerBrake", {f"tonnage_power_brake{{{ROW}}}": gauge(0, 1)}, IN_ROW),
    Story("TonnagePowerLoopStalled", {'tonnage_power_last_turn_timestamp_seconds{job="t"}': stopped_clock}),
    Story(
        "TonnagePowerForged",
        {'tonnage_power_messages_refused_total{job="t", reason="OtherNode"}': counter(0, 1)},
    ),
    # 16 of 100 devices.
    Story(
        "TonnageGpusStranded",
        {
            'tonnage_gpus{job="t", gpu_type="A100", state="allocated"}': gauge(95, 84),
            'tonnage_gpus{job="t", gpu_type="A100", state="stranded"}': gauge(5, 16),
        },
    ),
    Story(
        "TonnageScalingMetricsMissing",
        {'tonnage_scaling_metrics_missing{job="t", policy="ns/chat"}': gauge(0, 1)},
        {"job": "t", "policy": "ns/chat"},
    ),
    Story(
        "TonnageScalingConflict",
        {'tonnage_scaling_conflict{job="t", policy="ns/chat"}': gauge(0, 1)},
        {"job": "t", "policy": "ns/chat"},
    ),
    Story("TonnageHealthPaged", {'tonnage_health_incidents{job="t", phase="Paged"}': gauge(0, 1)}),
    Story("TonnageHealthDrainBlocked", {'tonnage_health_waiting{job="t", reason="DrainBlocked"}': gauge(0, 1)}),
    Story("TonnageHealthUnheard", {'tonnage_health_heard_share{job="t"}': gauge(1, 0.5)}),
    Story(
        "TonnageScalingCoverageLow",
        {'tonnage_scaling_coverage_ratio{job="t", policy="ns/chat", interval="90"}': gauge(0.9, 0.7)},
        {"job": "t", "policy": "ns/chat"},
    ),
    Story("TonnageAgentKilled", {killed("AgentKilled"): counter(0, 1)}, {"job": "t", "policy": "coders"}),
    Story("TonnageToolCallsKilled", {killed("ToolCallKilled"): counter(0, 5)}, {"job": "t", "policy": "coders"}),
    Story(
        "TonnageSandboxesUncontrolled",
        {'tonnage_sandboxes{job="t", policy="coders", state="uncontrolled"}': gauge(0, 2)},
        {"job": "t", "policy": "coders"},
    ),
)


def rules() -> dict[str, dict[str, str]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["labels"] for group in groups for rule in group["rules"]}


def promtool_test(story: Story) -> dict[str, object]:
    """Before the illness, at its end, and long after: only in between does the alert fire."""
    fires = {"__name__": "ALERTS", "alertname": story.alert, "alertstate": "firing", **rules()[story.alert]}
    labels = ", ".join(f'{name}="{value}"' for name, value in {**fires, **story.labels}.items() if name != "__name__")
    asked = f'ALERTS{{alertname="{story.alert}", alertstate="firing"}}'
    return {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": " ".join(value(minute) for minute in range(END))}
            for name, value in story.series.items()
        ],
        "promql_expr_test": [
            {"expr": asked, "eval_time": f"{ILL - 1}m", "exp_samples": []},
            {
                "expr": asked,
                "eval_time": f"{WELL - 1}m",
                "exp_samples": [{"labels": f"ALERTS{{{labels}}}", "value": 1}],
            },
            {"expr": asked, "eval_time": f"{END - 1}m", "exp_samples": []},
        ],
    }


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.alert)
def test_an_alert_fires_while_it_is_so_and_clears_afterwards(story: Story, tmp_path: Path) -> None:
    file = tmp_path / "story.yaml"
    about = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [promtool_test(story)]}
    file.write_text(json.dumps(about), encoding="utf-8")

    run = subprocess.run([tool("promtool"), "test", "rules", str(file)], capture_output=True, check=False)  # noqa: S603

    assert run.returncode == 0, (run.stdout + run.stderr).decode()


def test_every_alert_has_a_story() -> None:
    assert {story.alert for story in STORIES} == set(rules())


def test_every_alert_says_how_urgent_it_is() -> None:
    assert {labels["severity"] for labels in rules().values()} == {"critical", "warning", "info"}
