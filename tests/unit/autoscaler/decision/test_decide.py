from dataclasses import replace
from typing import Any

import pytest

from autoscaler.decision.decide import decide
from autoscaler.decision.outcome import ScalingDecision
from cluster.autoscaling import Behavior, LeadTime, Replicas, ScalingObjective, ScalingRules, ScalingStep
from tests.builders.scalers import NOW_S, STEADY, forecast_of, scaler


def decided(wanted: int | None = 4, **changes: Any) -> ScalingDecision:
    decision = decide(scaler(wanted, **changes), NOW_S)
    assert decision is not None
    return decision


def test_a_load_that_is_known_exactly_gets_exactly_its_replicas() -> None:
    # 5.5 replicas' worth of load for the next half hour: the sixth misses 0.5 × 120 a minute, the seventh nothing.
    assert decided(5, load=5.5, forecast=forecast_of(5.5, STEADY)).replicas == 6
    assert decided(9, load=5.5, forecast=forecast_of(5.5, STEADY)).replicas == 6


def test_the_more_a_miss_costs_the_more_replicas_there_are() -> None:
    sizes = [decided(objective=ScalingObjective(miss_cost=cost)).replicas for cost in (3.0, 20.0, 99.0, 999.0)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_a_longer_lead_time_looks_further_ahead_on_a_ramp() -> None:
    ramp = forecast_of(3.0, ramp=0.2)
    soon, late = (decided(3, forecast=ramp, lead_time=LeadTime((lead_s,))).replicas for lead_s in (60.0, 1200.0))
    assert soon < late


def test_an_uncertain_lead_time_is_weighed_whole_and_not_by_its_mean() -> None:
    """On a step at 10 minutes, a lead of 5 minutes needs nothing yet, and one of 1 or 15 with even chance does."""
    step = forecast_of(1.0, STEADY)
    step = replace(step, quantiles=step.quantiles * (1 + 9 * (step.leads_s >= 600.0))[:, None])
    quiet = {"load": 1.0, "forecast": step}
    assert decided(1, lead_time=LeadTime((300.0,)), **quiet).replicas == 1
    assert decided(1, lead_time=LeadTime((60.0, 900.0)), **quiet).replicas == 10


def test_replicas_needed_before_a_replacement_could_be_ready_are_kept() -> None:
    """The load falls to 1 after four minutes; with a lead of ten minutes what is stopped now would be missing."""
    fall = forecast_of(8.0, STEADY)
    fall = replace(fall, quantiles=fall.quantiles * (1 - 0.875 * (fall.leads_s > 240.0))[:, None])
    assert decided(8, load=1.0, forecast=fall, lead_time=LeadTime((600.0,))).replicas == 8


def test_pending_replicas_count_once() -> None:
    pending = Replicas(wanted=6, ready=2, ordered_at_s=(NOW_S - 60.0,) * 4)
    steady = {"load": 5.5, "forecast": forecast_of(5.5, STEADY)}
    assert decided(replicas=pending, **steady).replicas == decided(6, **steady).replicas == 6


def test_the_load_offered_now_is_served_whatever_the_forecast_says() -> None:
    decision = decided(4, load=11.2, forecast=forecast_of(2.0))
    assert (decision.replicas, decision.limited_by) == (12, "load")


def test_without_a_forecast_the_present_load_decides_at_the_target_utilisation() -> None:
    decision = decided(4, load=7.0, forecast=None, reactive_target=0.7)
    assert decision.replicas == 10
    assert (decision.forecast_used, decision.cost, decision.reason.code) == (False, None, "PresentLoad")


def test_an_unobserved_load_changes_nothing() -> None:
    decision = decided(4, load=None, forecast=None)
    assert (decision.replicas, decision.stale) == (4, True)


def test_stale_metrics_never_scale_down_and_say_so() -> None:
    decision = decided(40, observed_at_s=NOW_S - 600.0, forecast=forecast_of(3.0, made_at_s=NOW_S - 600.0))
    assert (decision.replicas, decision.limited_by, decision.stale) == (40, "stale", True)


def test_the_longer_metrics_are_lost_the_more_is_kept_in_reserve() -> None:
    last = forecast_of(30.0)
    at = [NOW_S, NOW_S + 1800.0, NOW_S + 3600.0, NOW_S + 7200.0]
    sizes = [decide(scaler(30, load=30.0, forecast=last), at_s) for at_s in at]
    replicas = [each.replicas for each in sizes if each is not None]
    assert replicas == sorted(replicas)
    assert replicas[0] < replicas[-1] < 3 * 48  # the spread at most doubles: no fleet is asked for


def test_an_idle_target_goes_to_zero_where_that_is_cheaper_and_not_below_its_minimum() -> None:
    idle = {"load": 0.0, "forecast": forecast_of(0.001)}
    assert decided(1, **idle).replicas == 0
    assert decided(1, min_replicas=1, **idle).replicas == 1
    # 0.05 of a replica expected at all times: missing it costs 120 × 0.05 > 1 replica.
    assert decided(1, load=0.0, forecast=forecast_of(0.05)).replicas == 1


def test_a_target_scaled_to_zero_by_hand_stays_there() -> None:
    decision = decided(0, min_replicas=1)
    assert (decision.replicas, decision.limited_by) == (0, "disabled")


@pytest.mark.parametrize(
    ("changes", "replicas", "limited_by"),
    [
        ({"max_replicas": 3}, 3, "max"),
        ({"min_replicas": 20}, 20, "min"),
        ({"min_replicas": 20, "scheduled": "launch"}, 20, "schedule"),
        ({"wanted": 2, "capacity_limit": 3, "capacity_limited_by": "power"}, 3, "power"),
        ({"wanted": 40, "mode": "ScaleUpOnly"}, 40, "mode"),
        ({"wanted": 2, "conflict": "HorizontalPodAutoscaler/ns/chat"}, 2, "conflict"),
        ({"wanted": 40, "recommended": ((NOW_S - 100.0, 17),), "window": 300.0}, 17, "stabilization"),
        ({"wanted": 40, "down": (ScalingStep("Pods", 2, 60.0),)}, 38, "behaviour"),
    ],
)
def test_the_limit_that_counts_is_named(changes: dict[str, Any], replicas: int, limited_by: str) -> None:
    rules = ScalingRules(stabilization_s=changes.pop("window", 0.0), steps=changes.pop("down", ()))
    decision = decided(behavior=Behavior(down=rules), **changes)
    assert (decision.replicas, decision.limited_by) == (replicas, limited_by)
    assert decision.reason.words


def test_a_capacity_limit_stops_nothing_that_runs() -> None:
    assert decided(8, load=8.0, forecast=forecast_of(8.0, STEADY), capacity_limit=2).replicas == 8


def test_a_recommendation_ignores_other_autoscalers() -> None:
    """A team's own HPA may be what follows the recommendation."""
    assert decided(2, mode="Recommend", conflict="HorizontalPodAutoscaler/ns/chat").replicas > 2


def test_nothing_is_decided_when_off_or_when_the_target_was_not_observed() -> None:
    assert decide(scaler(4, mode="Off"), NOW_S) is None
    assert decide(scaler(None), NOW_S) is None


def test_a_start_costs_its_price_and_what_it_is_billed_before_it_serves() -> None:
    """No misses: each more costs its price, and (800 s + the policy's 100 s) / 600 s of it once: 1 + 1.5 an hour."""
    objective = ScalingObjective(switch_s=100.0)
    cost = decided(5, min_replicas=9, load=3.0, forecast=forecast_of(3.0, STEADY), objective=objective).cost
    assert cost is not None
    assert cost.one_fewer is not None
    assert cost.one_more - cost.chosen == pytest.approx(2.5)
    assert cost.chosen - cost.one_fewer == pytest.approx(2.5)


def test_nothing_is_stopped_that_would_be_ordered_again_at_once() -> None:
    """Quiet for four minutes, then ten: with a lead of five minutes what runs is needed when a new one is ready."""
    step = forecast_of(1.0, STEADY)
    step = replace(step, quantiles=step.quantiles * (1 + 9 * (step.leads_s >= 300.0))[:, None])
    assert decided(10, load=1.0, forecast=step, lead_time=LeadTime((300.0,))).replicas == 10
