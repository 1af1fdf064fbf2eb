"""Status of a ScalingPolicy: the decision and its figures, conditions, and what a restart needs."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.autoscaling import Behavior, ForecastSkill, LeadTime, MissedShare, Scaler, ScalingRules, ScalingStep
from cluster.plans import Reason
from controller.api import scaling_policy
from controller.deciders import autoscaling
from controller.report.fleet_metrics import samples_of_scaling
from controller.report.scaling_status import FIGURES_EVERY_S, scaling_status_after
from tests.builders.fleet import node, world
from tests.builders.mix import demand
from tests.builders.scalers import NOW_S, scaler
from tests.builders.turns import asked

HPA = "HorizontalPodAutoscaler/ns/web"


def found(each: Scaler, at_s: float = NOW_S) -> Reason | None:
    seen = replace(world([node("a")], at_s=at_s), scalers=(each,))
    return next((finding.reason for finding in asked(autoscaling.decide, seen).findings), None)


def status(each: Scaler, before: dict[str, Any] | None = None, at_s: float = NOW_S) -> dict[str, Any]:
    return scaling_status_after(before or {}, each, found(each, at_s), generation=2, at_s=at_s)


def conditions(written: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in written["conditions"]}


def test_a_status_shows_the_decision_with_its_counterfactual() -> None:
    written = status(scaler(wanted=4))

    assert (written["currentReplicas"], written["desiredReplicas"]) == (4, 4)
    assert written["recommendedReplicas"] > 3
    assert set(written["expectedCost"]) == {"chosen", "oneFewer", "oneMore"}
    assert written["expectedCost"]["chosen"] <= min(
        written["expectedCost"]["oneFewer"], written["expectedCost"]["oneMore"]
    )
    assert written["forecast"]["p50"] == pytest.approx(3.0)
    assert written["leadTime"]["p50"] == 300.0
    assert 0 < written["chosenQuantile"] <= 1


def test_what_was_learned_of_a_missed_share_is_kept_as_the_object_names_it() -> None:
    written = status(replace(scaler(wanted=4), missed=MissedShare(0.005, 40.0, 40.0)))

    assert written["missed"]["missCost"] == pytest.approx(40.0, abs=2.0)
    assert scaling_policy.ScalingPolicyStatus.model_validate(written).missed is not None


def test_a_policy_in_order_is_ready() -> None:
    trusted = ForecastSkill("core", is_trusted=True, skill=0.2, coverage_90=0.91, coverage_99=0.99)

    assert conditions(status(scaler(wanted=4, skill=trusted))) == {
        "MetricsAvailable": ("True", "Fresh"),
        "ForecastTrusted": ("True", "BetterThanNaive"),
        "ScalingLimited": ("False", "NotLimited"),
        "Conflict": ("False", "NoConflict"),
        "Ready": ("True", "Scaling"),
    }


@pytest.mark.parametrize(
    ("changes", "condition", "claim"),
    [
        ({"load": None, "forecast": None}, "MetricsAvailable", ("False", "NeverMeasured")),
        ({"observed_at_s": NOW_S - 120.0}, "MetricsAvailable", ("False", "Stale")),
        (
            {"source_problem": "PrometheusUnreachable: no answer"},
            "MetricsAvailable",
            ("False", "PrometheusUnreachable"),
        ),
        ({"observed_at_s": NOW_S - 120.0}, "Ready", ("False", "MetricsMissing")),
        ({"conflict": HPA}, "Conflict", ("True", "AnotherAutoscaler")),
        ({"conflict": HPA}, "Ready", ("False", "Conflict")),
        ({"max_replicas": 2}, "ScalingLimited", ("True", "AtMaxReplicas")),
        ({"forecast": None}, "ForecastTrusted", ("Unknown", "TooLittleHistory")),
        ({"skill": ForecastSkill("naive", is_trusted=False, skill=0.0)}, "ForecastTrusted", ("False", "NaiveIsBetter")),
        ({"mode": "Recommend"}, "Ready", ("True", "Recommending")),
        ({"mode": "Off"}, "Ready", ("False", "Off")),
        ({"problem": "TargetNotFound: there is none", "replicas": None}, "Ready", ("False", "TargetNotFound")),
    ],
)
def test_what_is_wrong_is_a_condition(changes: dict[str, Any], condition: str, claim: tuple[str, str]) -> None:
    assert conditions(status(scaler(wanted=4, **changes)))[condition] == claim


def test_the_replicas_of_an_absurd_load_are_as_many_as_a_status_may_hold() -> None:
    written = status(scaler(wanted=4, load=1e29, forecast=None))

    assert written["recommendations"][-1]["replicas"] == scaling_policy.MOST_REPLICAS
    assert status(scaler(wanted=4, load=1e29, forecast=None), written) == written


def test_new_figures_alone_are_written_now_and_then() -> None:
    first = status(scaler(wanted=6))
    soon, later = NOW_S + FIGURES_EVERY_S / 2, NOW_S + FIGURES_EVERY_S

    assert status(scaler(wanted=6, load=3.01, observed_at_s=soon), first, soon) == first
    assert status(scaler(wanted=6, load=3.01, observed_at_s=later), first, later)["load"] == 3.01


def test_what_was_decided_is_written_at_once() -> None:
    first = status(scaler(wanted=6))

    assert conditions(status(scaler(wanted=6, conflict=HPA), first, NOW_S + 1.0))["Conflict"][0] == "True"


def test_recommendations_are_kept_as_far_back_as_stabilization_needs_them() -> None:
    calm = Behavior(down=ScalingRules(stabilization_s=300.0))
    kept = status(scaler(wanted=4, behavior=calm, load=9.0))
    fewer = status(scaler(wanted=4, behavior=calm, load=3.0, observed_at_s=NOW_S + 60.0), kept, NOW_S + 60.0)
    late = NOW_S + 400.0
    settled = status(scaler(wanted=4, behavior=calm, load=3.0, observed_at_s=late), fewer, late)

    # 4 replicas were there at first; a load of 9 needs 9, one of 3 needs 5.
    assert [each["replicas"] for each in fewer["recommendations"]] == [4, 9, 5]
    assert settled["recommendations"] == fewer["recommendations"][2:]  # the second one ended 340 s ago


def test_changes_are_kept_as_far_back_as_a_step_needs_them() -> None:
    steps = Behavior(up=ScalingRules(steps=(ScalingStep("Pods", 4, 60.0),)))
    written = status(scaler(wanted=4, behavior=steps, changes=((NOW_S - 90.0, 1), (NOW_S - 30.0, 2))))

    assert [each["change"] for each in written["changes"]] == [2]


def test_a_service_in_force_keeps_the_replicas_of_its_decision() -> None:
    in_force = status(scaler(wanted=1, demand=demand(3.0)))
    advice = status(scaler(wanted=1, demand=demand(3.0), mode="Recommend"))

    assert in_force["desiredReplicas"] == in_force["recommendedReplicas"]
    assert "desiredReplicas" not in advice


@pytest.mark.parametrize("changes", [{"observed_at_s": NOW_S - 600.0}, {"load": None}])
def test_an_outage_of_the_metrics_does_not_write_new_figures_in_every_cycle(changes: dict[str, Any]) -> None:
    """The decision weighs the age of the forecast, and pending replicas lengthen the lead time, from cycle to cycle."""
    before = status(scaler(wanted=4, **changes))
    waited = scaler(wanted=4, lead_time=LeadTime((300.0, 302.0)), **changes)

    assert status(waited, before, NOW_S + 2.0) == before


def test_a_finished_start_is_kept_for_a_restart_also_in_an_outage() -> None:
    before = status(scaler(wanted=4, load=None, starts_s=(80.0,)))

    assert status(scaler(wanted=4, load=None, starts_s=(80.0, 95.0)), before)["leadTime"]["learned"] == [80.0, 95.0]


def test_metrics_show_load_forecast_decision_and_limits() -> None:
    limited = scaler(wanted=2, max_replicas=2, conflict=HPA)
    seen = replace(world([node("a")], at_s=NOW_S), scalers=(limited, scaler(mode="Off", name="ns/off")))
    findings = asked(autoscaling.decide, seen).findings

    samples = {(each.name, *each.labels[1:]): each.value for each in samples_of_scaling(seen, findings)}

    assert samples["tonnage_scaling_load",] == 3.0
    assert samples["tonnage_scaling_capacity",] == 2.0
    assert samples["tonnage_scaling_forecast", "0.5"] == pytest.approx(3.0)
    assert samples["tonnage_scaling_conflict",] == 1
    assert samples["tonnage_scaling_metrics_missing",] == 0
    assert samples["tonnage_scaling_limited", "max"] == 1
    assert all(each.labels[0] == "ns/chat" for each in samples_of_scaling(seen, findings))
