"""`tonnage scaling explain`: statuses of ScalingPolicies in print."""

import math
from dataclasses import replace
from typing import Any

from cli.printing.scaling_output import as_data, explanation, policies_of
from cluster.autoscaling import (
    Arm,
    BanditState,
    ConcurrencyLimit,
    ConcurrencyTuning,
    Context,
    ForecastSkill,
    Learned,
    Scaler,
)
from controller.api.conditions import ObservedStatus, conditions_after
from controller.deciders import autoscaling
from controller.report.scaling_status import scaling_status_after
from controller.report.statuses import accepted
from tests.builders.fleet import node, world
from tests.builders.scalers import NOW_S, scaler
from tests.builders.turns import asked

SKILL = ForecastSkill("core", is_trusted=True, skill=0.125, coverage_90=0.91, coverage_99=0.985)


def policy(name: str = "web", decided: Scaler | None = None, **spec: Any) -> dict[str, Any]:
    about = {"target": {"kind": "Deployment", "name": "web"}, "maxReplicas": 20, "mode": "Auto", **spec}
    status = _status_of(decided) if decided else {}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": about, "status": status}


def _status_of(decided: Scaler) -> dict[str, Any]:
    seen = replace(world([node("a")], at_s=NOW_S), scalers=(decided,))
    findings = asked(autoscaling.decide, seen).findings
    found = findings[0].reason if findings else None
    conditions = conditions_after((), [accepted(())], generation=1, at_s=NOW_S)
    return scaling_status_after(ObservedStatus(conditions=conditions).plain(), decided, found, generation=1, at_s=NOW_S)


def explained(obj: dict[str, Any]) -> str:
    (only,) = policies_of([obj])
    return "\n".join(explanation(only, NOW_S + 12.0))


def test_an_explanation_has_load_forecast_lead_time_and_the_cost_of_one_fewer_and_one_more() -> None:
    text = explained(policy(decided=scaler(wanted=4, skill=SKILL)))

    assert "its spec asks for 4, 4 are ready; 1 to 20 are allowed" in text
    assert "load: 3, measured 12s ago; one replica serves 1" in text
    assert "forecast in 5m by test: p50 3" in text
    assert "91.0% were inside the 90 % interval" in text
    assert "skill: +12.5% against the naive forecast" in text
    assert "lead time: 5m" in text
    assert "assumed" in text
    (desired,) = (line for line in text.splitlines() if line.endswith("desired"))
    assert "/h" in desired
    assert "with probability" in text


def test_what_limits_and_what_opposes_a_decision_is_named() -> None:
    hpa = "HorizontalPodAutoscaler/ns/web"
    text = explained(policy(decided=scaler(wanted=2, max_replicas=2, conflict=hpa)))

    assert "limited by: max" in text
    assert f"Conflict: True, AnotherAutoscaler: {hpa} scales Deployment/ns/chat, too" in text


def test_without_a_forecast_the_present_load_decides() -> None:
    text = explained(policy(decided=scaler(wanted=4, forecast=None)))

    assert "forecast: none yet; the present load decides" in text
    assert "no expected cost: there is no forecast" in text


def test_a_recommendation_states_that_it_changes_nothing() -> None:
    text = explained(policy(decided=scaler(wanted=4, mode="Recommend"), mode="Recommend"))

    assert "nothing is changed in this mode" in text


def test_a_policy_without_a_status_is_explained_by_what_may_be_off() -> None:
    assert "does the operator run" in explained(policy())


def test_programs_get_the_status_as_the_api_has_it() -> None:
    (listed,) = policies_of([policy(decided=scaler(wanted=4))])

    data = as_data(listed)

    assert (data["namespace"], data["name"], data["mode"]) == ("ns", "web", "Auto")
    assert set(data["expectedCost"]) == {"chosen", "oneFewer", "oneMore"}


def test_a_tuned_concurrency_is_explained_with_what_was_measured_under_each_limit() -> None:
    context = Context("A100", 4, 3)
    arms = (Arm(8, 2.0, math.log(4.0), math.log(3.5)), Arm(10, 1.0, math.log(5.0), math.log(4.0)))
    state = BanditState(12, context, (Learned(context, 12, 10, 40.0, arms),))
    tuning = ConcurrencyTuning(guard_s=5.0, lowest=1, highest=64, start=8, wanted=8, follows=True)
    decided = ConcurrencyLimit("ns/web", NOW_S, 10, "Raised", "10 requests at once, now 8", state)
    seen = scaler(wanted=4, concurrency=tuning)
    status = scaling_status_after({}, seen, None, generation=1, at_s=NOW_S, limit=decided)

    text = explained({**policy(), "status": {**status, "observedGeneration": 1}})

    assert "concurrency: 10 requests at once by replica, in force; 12 decisions so far" in text
    assert "Raised: 10 requests at once, now 8" in text
    assert [line.split() for line in text.splitlines() if line.endswith(("3.5s", "4s"))] == [
        ["8", "4/s", "3.5s"],
        ["10", "5/s", "4s"],
    ]
    assert "ConcurrencyTuned: True, Raised" in text
