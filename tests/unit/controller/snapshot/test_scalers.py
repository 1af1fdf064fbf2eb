"""Scalers from ScalingPolicies: bounds by schedules, units of services, and what a status keeps for a restart."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autoscaler.decision.decide import decide
from cluster.autoscaling import MOST_ORDERED, Behavior, Replicas, Scaler
from controller.api.scaling_policy import MOST_REPLICAS, PolicyBehavior, ScalingPolicy
from controller.objects.manifests import read_manifests
from controller.report.fleet_metrics import samples_of_scaling
from controller.report.scaling_status import scaling_status_after
from controller.snapshot.from_manifests import snapshot_from
from controller.snapshot.scalers import (
    MOST_POLICIES,
    PolicyState,
    _rules,
    bounds_at,
    is_past_bound,
    recommended_in,
    scaler_of,
)
from tests.builders.crd_cases import OTHERS, Object
from tests.builders.fleet import node as seen_node, world
from tests.builders.manifests import OURS, gpu_type, having, node, observed, profile, service
from tests.builders.scalers import NOW_S


def policy(target: Object | None = None, status: Object | None = None, **spec: Any) -> Object:
    """Policy of a Deployment, one replica of which serves a load of 10."""
    about = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": OURS,
        "kind": "ScalingPolicy",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "target": target or about,
            "maxReplicas": 20,
            "demand": {"sources": [{"push": {}}]},
            "capacity": {"perReplica": 10},
            "mode": "Auto",
            **spec,
        },
        **({"status": status} if status else {}),
    }


EXAMPLES = Path(__file__).parents[4] / "examples"
OF_SERVICE = {"apiVersion": OURS, "kind": "ModelService", "name": "chat"}


def scaler_in(folder: Path, *objects: Object) -> Scaler:
    (scaler,) = observed(folder, gpu_type(), node(), profile(), *objects).snapshot.scalers
    return scaler


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def parsed(**spec: Any) -> ScalingPolicy:
    return ScalingPolicy.model_validate(policy(**spec))


def test_a_policy_is_a_scaler_by_its_spec(tmp_path: Path) -> None:
    behavior = {
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}],
        }
    }
    scaler = scaler_in(tmp_path, policy(behavior=behavior, objective={"gpuType": "a100", "gpus": 2, "missCost": 50}))

    assert (str(scaler.target), scaler.target.name) == ("Deployment/default/web", "default/web")
    assert (scaler.min_replicas, scaler.max_replicas, scaler.replica_load) == (1, 20, 10.0)
    assert (scaler.objective.price_per_hour, scaler.objective.miss_cost) == (8.0, 50.0)  # two GPUs at $4
    assert scaler.behavior.down.stabilization_s == 300.0
    assert scaler.behavior.down.steps[0].value == 50.0


def test_a_service_whose_demand_needs_absurdly_many_replicas_of_a_policy_is_read_in_bounds(tmp_path: Path) -> None:
    """10^9 requests a second by replicas of 10^-9 each, of which a pod waits: a list of 10^18 instants."""
    seen = observed(tmp_path, gpu_type(), node(), profile(), having(service(), "spec.demand.requestsPerSecond", 1e9))
    written = ScalingPolicy.model_validate(policy(OF_SERVICE, capacity={"perReplica": 1e-9}, minReplicas=0))
    state = PolicyState(replicas=Replicas(1, 0, (0.0,)))

    found = scaler_of("default/web", written, seen.snapshot, state)

    assert found.problem == ""
    assert found.replicas == Replicas(MOST_REPLICAS, 0, (0.0,) * MOST_ORDERED)


def test_of_a_namespace_with_very_many_policies_the_first_by_name_are_evaluated(tmp_path: Path) -> None:
    """Each took a millisecond of every cycle, and a dozen series: thousands of one tenant slowed everybody."""
    written = [having(policy(), "metadata.name", f"p{n:03}") for n in range(MOST_POLICIES + 2)]
    other = having(having(policy(), "metadata.name", "x"), "metadata.namespace", "other")

    scalers = observed(tmp_path, gpu_type(), node(), profile(), *written, other).snapshot.scalers

    past = [each for each in scalers if is_past_bound(each)]
    assert [each.name for each in past] == ["default/p256", "default/p257"]
    assert past[0].problem.startswith("NamespaceBoundExceeded: its namespace has more than 256 ScalingPolicies")
    now = replace(observed(tmp_path, node()).snapshot, scalers=(*past, scalers[-1]))
    assert {sample.labels[0] for sample in samples_of_scaling(now, ())} == {"other/x"}


def test_a_policy_that_says_nothing_of_its_behavior_has_the_default_that_was_measured() -> None:
    written = PolicyBehavior()
    assert Behavior(_rules(written.scale_up), _rules(written.scale_down)) == Behavior()


def test_a_policy_that_limits_scaling_down_otherwise_still_waits_before_it(tmp_path: Path) -> None:
    steps = {"scaleDown": {"policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}]}}

    assert scaler_in(tmp_path, policy(behavior=steps)).behavior.down.stabilization_s == Behavior().down.stabilization_s


def test_before_its_target_was_read_nothing_is_known_of_it(tmp_path: Path) -> None:
    scaler = scaler_in(tmp_path, policy())

    assert scaler.replicas is None
    assert scaler.load is None


def test_a_status_keeps_what_a_restart_needs(tmp_path: Path) -> None:
    status = {
        "currentReplicas": 3,
        "desiredReplicas": 4,
        "load": 35.0,
        "loadTime": "2026-03-01T12:00:00Z",
        "forecast": {"p50": 36.0, "p90": 45.0, "p99": 60.0, "atSeconds": 120.0},
        "leadTime": {"p50": 100.0, "p95": 200.0, "samples": 2, "learned": [90.0, 110.0]},
        "changes": [{"time": "2026-03-01T11:59:00Z", "change": 1}],
    }
    scaler = scaler_in(tmp_path, policy(status=status))

    assert scaler.replicas is not None
    assert (scaler.replicas.wanted, scaler.replicas.ready) == (4, 3)
    assert (scaler.load, scaler.observed_at_s) == (35.0, instant("2026-03-01T12:00:00+00:00"))
    assert scaler.forecast is not None
    assert scaler.forecast.quantile(0.9, 120.0) == 45.0
    assert scaler.lead_time.samples == 2
    assert scaler.changes == ((instant("2026-03-01T11:59:00+00:00"), 1),)


def test_a_target_that_begins_to_be_observed_is_not_scaled_down_on_its_first_sample() -> None:
    fleet = world([seen_node("a")], at_s=NOW_S)
    seen = PolicyState(load=20.0, observed_at_s=NOW_S, replicas=Replicas(12, 12, (), NOW_S))
    new = parsed()

    first = scaler_of("default/web", new, fleet, seen)
    decision = decide(first, NOW_S)
    status = scaling_status_after({}, first, decision.reason if decision else None, generation=1, at_s=NOW_S)
    known = ScalingPolicy.model_validate(policy(status=status))

    assert decision is not None
    assert (decision.replicas, decision.limited_by) == (12, "stabilization")
    for later_s, replicas in ((15.0, 12), (290.0, 12), (310.0, 3)):  # the window of 300 s begins with the observation
        at_s = NOW_S + later_s
        now = replace(seen, observed_at_s=at_s)
        later = decide(scaler_of("default/web", known, replace(fleet, at_s=at_s), now), at_s)
        assert later is not None
        assert later.replicas == replicas


def test_a_recommendation_holds_until_the_next_one() -> None:
    noon = instant("2026-03-01T12:00:00+00:00")
    kept = [
        {"time": "2026-03-01T12:00:00Z", "replicas": 8},
        {"time": "2026-03-01T12:10:00Z", "replicas": 3},
    ]
    status = ScalingPolicy.model_validate(policy(status={"recommendations": kept})).status

    points = recommended_in(status, noon + 900.0)

    # A window that begins at 12:09 still finds the 8 of noon.
    assert max(replicas for at_s, replicas in points if at_s > noon + 540.0) == 8
    assert max(replicas for at_s, replicas in points if at_s > noon + 600.0) == 3


def test_a_service_counts_in_instances_of_the_cheapest_type_for_its_lengths(tmp_path: Path) -> None:
    # Histogram (0.5, 0.25, 0.125, 0.125) at 8, 4, 2, 1 requests per second: busy 0.0625 + 0.0625 + 0.0625 + 0.125
    # = 0.3125 instances at 1 request per second, so one instance serves 3.2 per second, at $4 an hour.
    scaler = scaler_in(tmp_path, service(), policy(OF_SERVICE, capacity=None) | {})

    assert scaler.replica_load == pytest.approx(3.2)
    assert scaler.objective.price_per_hour == pytest.approx(4.0)
    assert scaler.replicas is not None
    assert scaler.replicas.wanted == 2  # 6 requests per second of its spec / 3.2, rounded up
    assert scaler.demand is not None


def test_a_service_of_unknown_lengths_states_its_problem(tmp_path: Path) -> None:
    unknown = having(service(), "spec", {**service()["spec"], "demand": None})

    scaler = scaler_in(tmp_path, unknown, policy(OF_SERVICE, capacity=None))

    assert scaler.problem.startswith("LengthsUnknown: ")
    assert scaler.replicas is None


def test_a_target_that_does_not_exist_is_a_problem(tmp_path: Path) -> None:
    assert scaler_in(tmp_path, policy(OF_SERVICE, capacity=None)).problem.startswith("TargetNotFound: ")


OFFICE = {
    "name": "office",
    "days": ["Mon"],
    "start": "08:00",
    "end": "18:00",
    "timezone": "Europe/Berlin",
    "minReplicas": 6,
}
NIGHT = {"name": "night", "days": ["Fri"], "start": "22:00", "end": "06:00", "maxReplicas": 3}


@pytest.mark.parametrize(
    ("at", "low"),
    [
        ("2026-03-02T07:30:00+00:00", 6),  # Monday 08:30 in winter
        ("2026-03-02T06:30:00+00:00", 1),
        ("2026-03-30T06:30:00+00:00", 6),  # Monday 08:30 in summer, a day after the clocks changed
        ("2026-03-03T07:30:00+00:00", 1),  # Tuesday
    ],
)
def test_a_schedule_follows_the_clocks_of_its_time_zone(at: str, low: int) -> None:
    assert bounds_at(parsed(schedules=[OFFICE]).spec, instant(at), 0.0).low == low


@pytest.mark.parametrize(
    ("at", "high"),
    [
        ("2026-03-06T22:30:00+00:00", 3),  # Friday
        ("2026-03-07T05:30:00+00:00", 3),  # Saturday morning: it started on Friday
        ("2026-03-07T06:00:00+00:00", 20),
        ("2026-03-07T22:30:00+00:00", 20),
    ],
)
def test_a_schedule_over_midnight_belongs_to_the_day_on_which_it_starts(at: str, high: int) -> None:
    assert bounds_at(parsed(schedules=[NIGHT]).spec, instant(at), 0.0).high == high


def test_of_several_schedules_the_highest_bounds_count_and_never_above_the_maximum() -> None:
    more = {"name": "more", "start": "00:00", "end": "00:00", "minReplicas": 50}
    bounds = bounds_at(parsed(schedules=[OFFICE, more]).spec, instant("2026-03-02T07:30:00+00:00"), 0.0)

    assert (bounds.low, bounds.high, bounds.scheduled) == (20, 20, "office, more")


def test_a_fallback_only_adds_and_only_after_its_time() -> None:
    spec = parsed(minReplicas=4, fallback={"replicas": 6, "after": "10m"}).spec
    fewer = parsed(minReplicas=4, fallback={"replicas": 2, "after": "10m"}).spec

    assert bounds_at(spec, 0.0, 599.0).low == 4
    assert bounds_at(spec, 0.0, 600.0).low == 6
    assert bounds_at(fewer, 0.0, 600.0).low == 4


def test_a_fixed_lead_time_is_taken_as_it_is() -> None:
    snapshot = world([seen_node("a")], at_s=datetime(2026, 3, 1, tzinfo=UTC).timestamp())

    scaler = scaler_of("default/web", parsed(leadTime={"fixed": "3m"}), snapshot, PolicyState())

    assert scaler.lead_time.points_s == (180.0,)


@pytest.mark.parametrize("obj", OTHERS["ScalingPolicy"], ids=range(len(OTHERS["ScalingPolicy"])))
def test_every_form_of_a_policy_makes_a_scaler(tmp_path: Path, obj: Object) -> None:
    assert scaler_in(tmp_path, obj).max_replicas == 100_000


def test_the_example_is_a_recommendation_for_a_service_of_the_examples() -> None:
    files = [str(EXAMPLES)]

    (scaler,) = snapshot_from(read_manifests(files)).snapshot.scalers

    assert (str(scaler.target), scaler.mode, scaler.problem) == ("ModelService/default/chat", "Recommend", "")


def test_of_another_target_or_query_a_status_tells_nothing() -> None:
    mine = parsed().model_dump(by_alias=True, mode="json", exclude_none=True)
    learned = {"about": parsed().about, "recommendations": [{"time": "2026-03-01T00:00:00Z", "replicas": 9}]}
    same = ScalingPolicy.model_validate({**mine, "status": learned})
    target = {**mine["spec"]["target"], "name": "other"}
    other = ScalingPolicy.model_validate({**mine, "spec": {**mine["spec"], "target": target}, "status": learned})

    assert [each.replicas for each in same.own_status.recommendations] == [9]
    assert other.own_status.recommendations == ()
