"""Facts of the autoscaler: measurements and forecasts in the scalers of a snapshot."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from cluster.autoscaling import Replicas, Scaler, ScaleTarget
from cluster.demand import LengthGrid, ThroughputProfile
from controller.api.scaling_policy import ForecastPolicy, ScalingPolicy, ScalingPolicyStatus
from controller.loops.autoscaler.forecasting import STEP_S, Forecasts, LoadSeries
from controller.loops.autoscaler.loop import series_of
from controller.loops.autoscaler.measured import LengthShares, Measured, Sample
from controller.loops.autoscaler.policies import with_measured
from controller.loops.autoscaler.targets import TargetState
from controller.snapshot.scalers import PolicyState, scaler_of, with_conflicts
from tests.builders.background import Here
from tests.builders.fleet import node, pod, world
from tests.builders.mix import of_types, profile, service
from tests.builders.scalers import scaler
from tests.clock import HandClock
from tests.unit.controller.loops.autoscaler.test_targets import BEGIN_S, policy

NAME = "default/web"
SERVICE = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "chat"}
READ = TargetState(Replicas(4, 3, (BEGIN_S,), BEGIN_S), "deployments", (80.0, 90.0))


def measured_scaler(
    measured: Measured,
    of: ScalingPolicy | None = None,
    target: TargetState = READ,
    conflict: str = "",
    profiles: Sequence[ThroughputProfile] = (profile("A100", ((2.0,),)),),
) -> Scaler:
    read = of or policy(mode="Auto")
    unknown = replace(service("default/chat"), demand=None)
    fleet = world([node("a", gpus=8, gpu_type="A100")], services=[unknown], profiles=profiles)
    seen = replace(fleet, at_s=BEGIN_S + 60.0)
    seen = replace(seen, scalers=(scaler_of(NAME, read, seen, PolicyState()),))
    autoscalers = {("default", "apps", "Deployment", "web"): conflict}
    (found,) = with_measured(seen, {NAME: read}, measured, lambda _: target, autoscalers).scalers
    return found


def test_a_scaler_has_what_was_measured_of_its_policy() -> None:
    measured = Measured()
    measured.put_sample(NAME, "load", Sample(BEGIN_S + 45.0, 33.0))

    found = measured_scaler(measured, conflict="HorizontalPodAutoscaler/default/hpa")

    assert (found.load, found.observed_at_s) == (33.0, BEGIN_S + 45.0)
    assert found.replicas == READ.replicas
    assert found.target.plural == "deployments"
    assert found.lead_time.samples == 2
    assert found.conflict == "HorizontalPodAutoscaler/default/hpa"


def test_a_load_in_the_status_from_the_future_gives_way_to_what_is_measured() -> None:
    read = policy(mode="Auto")
    ahead = read.model_copy(update={"status": ScalingPolicyStatus(load=99.0, load_time=BEGIN_S + 3600.0)})
    measured = Measured()
    measured.put_sample(NAME, "load", Sample(BEGIN_S + 45.0, 33.0))

    assert measured_scaler(measured, ahead).load == 33.0


def test_a_failed_reading_is_stated_with_the_last_sample() -> None:
    measured = Measured()
    measured.put_sample(NAME, "load", Sample(BEGIN_S, 33.0))
    measured.put_failure(NAME, "load", BEGIN_S + 15.0, "PrometheusUnreachable", "no answer")

    found = measured_scaler(measured)

    assert (found.load, found.source_problem) == (33.0, "PrometheusUnreachable: no answer")


def test_the_load_is_the_role_that_comes_first_even_while_only_another_one_is_measured() -> None:
    both = policy(demand={"sources": [{"role": "queue", "push": {}}, {"role": "requests", "push": {}}]})
    measured = Measured()
    measured.put_sample(NAME, "queue", Sample(BEGIN_S, 7.0))

    assert both.spec.demand.load.role == "requests"
    assert measured_scaler(measured, both).load is None


def test_a_service_without_demand_works_from_measured_rate_and_lengths() -> None:
    of_service = policy(target=SERVICE, capacity=None, demand={"sources": [{"role": "requests", "push": {}}]})
    measured = Measured()
    measured.put_sample(NAME, "requests", Sample(BEGIN_S, 5.0))
    measured.put_lengths(NAME, LengthShares(BEGIN_S, LengthGrid((100,), (50,)), np.array([[1.0]])))

    found = measured_scaler(measured, of_service, TargetState(Replicas(0, 0, (), BEGIN_S)))

    assert found.demand is not None
    assert (found.demand.rate_per_s, found.replica_load) == (5.0, 2.0)
    assert found.replicas is not None
    assert found.replicas.wanted == 3  # 5 requests per second, 2 per replica


@pytest.mark.parametrize(
    ("edges", "share", "expected"),
    [
        ((100, 400), (0.5, 0.5), (0.5, 0.5)),  # longer than any profile: they count in its last bucket
        ((200,), (1.0,), (0.5, 0.5)),  # spread evenly over the buckets of the profile
        ((50, 100), (0.2, 0.8), (1.0, 0.0)),
    ],
)
def test_measured_lengths_count_on_the_edges_of_the_profiles(
    edges: tuple[int, ...], share: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    """The profile has prompts up to 100 and 200 tokens, and outputs up to 50."""
    of_service = policy(target=SERVICE, capacity=None, demand={"sources": [{"role": "requests", "push": {}}]})
    measured = Measured()
    measured.put_lengths(NAME, LengthShares(BEGIN_S, LengthGrid(edges, (80,)), np.array([[each] for each in share])))

    found = measured_scaler(measured, of_service, profiles=[profile("A100", ((2.0,), (1.0,)))])

    assert found.problem == ""
    assert found.demand is not None
    assert found.demand.grid == LengthGrid((100, 200), (50,))
    assert found.demand.share.tolist() == [[pytest.approx(each)] for each in expected]


@pytest.mark.parametrize(("ready", "served"), [({"L4": 5}, 5.0), ({"A100": 1}, 10.0), ({"A100": 1, "L4": 5}, 15.0)])
def test_what_is_ready_of_a_service_counts_by_what_it_serves(ready: dict[str, int], served: float) -> None:
    """An A100 serves ten requests/s for what ten L4s cost, an L4 one; the last decision was for 15 requests/s."""
    types = {"A100": 10.0, "L4": 1.0}
    running = replace(service("default/chat", replicas=of_types({"A100": 1, "L4": 5})), demand=None)
    nodes = [node(name, gpus=8, gpu_type=name) for name in types]
    profiles = [profile(name, ((rate,),)) for name, rate in types.items()]
    fleet = replace(world(nodes, services=[running], profiles=profiles, prices=types), at_s=BEGIN_S + 60.0)
    read = policy(target=SERVICE, mode="Auto", capacity=None, demand={"sources": [{"role": "requests", "push": {}}]})
    read = read.model_copy(update={"status": ScalingPolicyStatus(desired_replicas=2)})
    grid = LengthGrid((100,), (50,))
    seen = PolicyState(
        lengths=(grid, np.array([[1.0]])), replicas=Replicas(6, sum(ready.values())), ready=of_types(ready)
    )

    found = scaler_of(NAME, read, fleet, seen)

    assert found.ready_load is not None
    assert found.ready_load == pytest.approx(min(served, 2 * found.replica_load * served / 15.0))


def test_tokens_alone_are_no_load_of_a_service() -> None:
    tokens = policy(target=SERVICE, capacity=None, demand={"sources": [{"role": "inputTokens", "push": {}}]})

    assert measured_scaler(Measured(), tokens).problem.startswith("LengthsUnknown: ")


def test_of_two_policies_in_force_for_one_target_the_first_by_name_owns_it() -> None:
    first, second, advice = (
        scaler(name=name, mode=mode) for name, mode in (("ns/a", "Auto"), ("ns/b", "Auto"), ("ns/0", "Recommend"))
    )

    found = {each.name: each.conflict for each in with_conflicts([advice, second, first])}

    assert found == {"ns/a": "", "ns/b": "ScalingPolicy/ns/a", "ns/0": "ScalingPolicy/ns/a"}


def test_kinds_of_two_api_groups_with_one_name_are_two_targets_and_versions_of_one_group_are_one() -> None:
    ours, later, foreign = (
        scaler(name=name, target=ScaleTarget(version, "Web", "ns/web"), mode="Auto")
        for name, version in (("ns/a", "one.io/v1"), ("ns/b", "one.io/v2"), ("ns/c", "two.io/v1"))
    )

    found = {each.name: each.conflict for each in with_conflicts([ours, later, foreign])}

    assert found == {"ns/a": "", "ns/b": "ScalingPolicy/ns/a", "ns/c": ""}


def test_a_policy_that_names_a_former_choice_of_models_is_forecast_like_any_other() -> None:
    models = get_args(ForecastPolicy.model_fields["model"].annotation)
    found = [policy(forecast={"model": model}) for model in models]

    assert models == ("auto", "core")
    assert {series_of(each) for each in found} == {series_of(policy())}


SERIES = {NAME: LoadSeries("load", 14 * 86_400.0)}


def test_samples_become_a_forecast_with_its_skill() -> None:
    measured, clock = Measured(), HandClock(BEGIN_S)
    forecasts = Forecasts(measured, clock, Here())
    for minute in range(120):
        clock.now_s = BEGIN_S + minute * STEP_S
        measured.put_sample(NAME, "load", Sample(clock.now_s, 40.0 + minute % 3))
        forecasts.turn(SERIES)

    known = measured.of(NAME)

    assert known.forecast is not None
    assert known.forecast.quantile(0.5, 120.0) == pytest.approx(41.0, abs=2.0)
    assert known.skill is not None
    assert known.skill.coverage_90 is not None


def test_a_history_that_comes_after_the_first_sample_is_taken_in_order() -> None:
    measured, clock = Measured(), HandClock(BEGIN_S)
    forecasts = Forecasts(measured, clock, Here())
    measured.put_sample(NAME, "load", Sample(BEGIN_S, 40.0))
    forecasts.turn(SERIES)
    history = [Sample(BEGIN_S - minute * STEP_S, 40.0) for minute in range(300, 0, -1)]
    measured.put_history(NAME, "load", history)
    forecasts.turn(SERIES)

    forecast = measured.of(NAME).forecast

    assert forecast is not None
    assert forecast.made_at_s == BEGIN_S
    assert forecast.quantile(0.9, 120.0) == pytest.approx(40.0, abs=1.0)


def test_a_policy_that_is_gone_is_not_forecast() -> None:
    measured, clock = Measured(), HandClock(BEGIN_S)
    forecasts = Forecasts(measured, clock, Here())
    measured.put_sample(NAME, "load", Sample(BEGIN_S, 40.0))
    forecasts.turn(SERIES)
    measured.keep({})
    forecasts.turn({})

    assert measured.of(NAME).forecast is None


@pytest.mark.parametrize(
    ("gpus", "capacity", "is_limited"),
    [(2, {"perReplica": 10}, True), (2, {"perReplica": 10, "elastic": True}, False), (0, {"perReplica": 10}, False)],
)
def test_the_needs_of_a_replica_with_gpus_are_those_of_a_pod_that_there_is(
    gpus: int, capacity: dict[str, Any], is_limited: bool
) -> None:
    devices = tuple(range(gpus))
    pods = [pod("default/web-0", gpus, on="a", devices=devices), pod("default/web-1", gpus), pod("default/other", 1)]
    seen = replace(world([node("a", gpus=8)], pods), at_s=BEGIN_S)
    read = policy(mode="Auto", capacity=capacity)
    seen = replace(seen, scalers=(scaler_of(NAME, read, seen, PolicyState()),))
    target = replace(READ, pods=("default/web-0", "default/web-1", "default/gone"))

    (found,) = with_measured(seen, {NAME: read}, Measured(), lambda _: target, {}).scalers

    assert (found.shape is not None) == is_limited
    if found.shape is not None:
        assert (found.shape.gpus, found.placed) == (2, 1)
