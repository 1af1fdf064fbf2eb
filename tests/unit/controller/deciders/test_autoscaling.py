"""Autoscaling decider: targets are changed, services planned for expected demand, and all policies explained."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.actions import SetReplicas
from cluster.autoscaling import LeadTime, Scaler, ScaleTarget
from cluster.demand import DeferredWork
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders import autoscaling
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from controller.guard import Limits, guard
from tests.builders.fleet import node, world
from tests.builders.mix import demand, of_types, profile, service
from tests.builders.scalers import NOW_S, scaler
from tests.builders.turns import asked

OUT_OF_ORDER = float("nan")


def fleet(*scalers: Scaler) -> Snapshot:
    return replace(world([node("a", gpus=8)], at_s=NOW_S), scalers=scalers)


def added(*scalers: Scaler) -> Plan:
    return asked(autoscaling.decide, fleet(*scalers))


def of_service(**changes: Any) -> Scaler:
    """Scaler of the service ns/chat, one replica of which serves 1 request per second."""
    about: dict[str, Any] = {"target": ScaleTarget("tonnage.dev/v1alpha1", "ModelService", "ns/chat"), **changes}
    return scaler(demand=demand(3.0), **about)


def test_a_target_in_force_gets_the_replicas_of_least_expected_cost() -> None:
    plan = added(scaler(wanted=1))

    (action,) = plan.actions
    assert isinstance(action, SetReplicas)
    assert (action.policy, action.was) == ("ns/chat", 1)
    assert action.replicas > 3  # a load of 3, and what the forecast's spread is worth


def test_the_second_cycle_plans_nothing() -> None:
    seen = fleet(scaler(wanted=1))
    after = seen.after(asked(autoscaling.decide, seen).actions)

    assert asked(autoscaling.decide, after).actions == ()


@pytest.mark.parametrize("changes", [{"mode": "Recommend"}, {"conflict": "HorizontalPodAutoscaler/ns/web"}])
def test_a_recommendation_and_a_conflict_change_nothing_and_are_explained(changes: dict[str, Any]) -> None:
    plan = added(scaler(wanted=1, **changes))

    assert plan.actions == ()
    assert [each.about for each in plan.findings] == ["ScalingPolicy/ns/chat"]


def test_a_policy_that_is_off_is_not_computed() -> None:
    assert added(scaler(mode="Off")) == Plan()


def test_a_broken_policy_refuses_itself_alone() -> None:
    broken = scaler(wanted=1, name="ns/broken", load=OUT_OF_ORDER, forecast=None)
    plan = added(broken, scaler(wanted=1))

    assert plan.findings[0].reason.code == "DecisionFailed"
    assert [action.subject for action in plan.actions] == ["ScalingPolicy/ns/chat"]


def test_a_policy_with_a_problem_states_it() -> None:
    (finding,) = added(scaler(problem="TargetNotFound: there is no Deployment/ns/chat")).findings

    assert (finding.reason.code, finding.reason.words) == ("TargetNotFound", "there is no Deployment/ns/chat")


def test_a_service_is_planned_for_the_load_that_the_decided_replicas_serve() -> None:
    (expected,) = added(of_service(wanted=1)).expected

    assert expected.service == "ns/chat"
    assert expected.demand.rate_per_s > 3
    assert expected.demand.rate_per_s == int(expected.demand.rate_per_s)  # whole replicas of 1 request per second each


def test_a_start_costs_the_mix_what_its_load_takes_of_the_time_until_the_next_decision() -> None:
    (expected,) = added(of_service(wanted=1, lead_time=LeadTime((60.0, 240.0)))).expected

    assert expected.start_share == 150.0 / 3600.0


def test_only_in_force_is_a_service_planned_for_measured_demand() -> None:
    assert added(of_service(wanted=1, mode="Recommend")).expected == ()


def test_a_service_without_demand_gets_a_mix_for_the_expected_demand() -> None:
    unknown = replace(service(rate=1.0), demand=None)
    seen = replace(
        world(
            [node("a", gpus=8, gpu_type="A100")], services=[unknown], profiles=[profile("A100", ((1.0,),))], at_s=NOW_S
        ),
        scalers=(of_service(wanted=1),),
    )

    plan = guard(seen, decide(seen, Decisions(), deadline_s=60.0, clock=lambda: 0.0), Limits())

    rate = plan.expected[0].demand.rate_per_s
    assert plan.services[0].instances == of_types({"A100": round(rate)})  # one request per second and instance
    assert plan.refused == ()


def test_instances_of_a_scaled_service_stay_where_a_cheaper_type_does_not_pay_for_its_start() -> None:
    running = of_types({"A100": 3})
    seen = world(
        [node("a", gpus=8, gpu_type="A100"), node("b", gpus=8, gpu_type="B200")],
        services=[service(rate=3.0, replicas=running, continuous_split=True)],
        profiles=[profile("A100", ((1.0,),)), profile("B200", ((1.0,),))],
        prices={"A100": 1.4, "B200": 1.0},
        at_s=NOW_S,
    )
    scaled = replace(seen, scalers=(of_service(wanted=3),))

    plan = decide(scaled, Decisions(), deadline_s=60.0, clock=lambda: 0.0)
    of_lasting_demand = decide(seen, Decisions(), deadline_s=60.0, clock=lambda: 0.0)

    more = round(plan.expected[0].demand.rate_per_s) - 3
    assert plan.services[0].instances == of_types({"A100": 3, "B200": more})
    assert of_lasting_demand.services[0].instances == of_types({"B200": 3})


def test_the_guard_drops_a_demand_beyond_the_bounds_of_its_policy() -> None:
    seen = fleet(of_service(wanted=1))
    plan = asked(autoscaling.decide, seen)
    narrow = replace(seen, scalers=(of_service(wanted=1, max_replicas=1),))

    assert guard(seen, plan, Limits()).expected == plan.expected
    assert guard(narrow, plan, Limits()).expected == ()


def test_requests_that_may_wait_are_planned_beside_the_expected_demand() -> None:
    waits = replace(service(rate=5.0), deferred=DeferredWork(1e6, NOW_S + 1e6, 2.0), deferred_per_s=2.0)
    seen = replace(
        world(
            [node("a", gpus=8, gpu_type="A100"), node("b", gpus=8, gpu_type="A100")],
            services=[waits],
            profiles=[profile("A100", ((1.0,),))],
            at_s=NOW_S,
        ),
        scalers=(of_service(wanted=3),),
    )

    plan = decide(seen, Decisions(), deadline_s=60.0, clock=lambda: 0.0)

    (expected,) = plan.expected
    assert sum(plan.services[0].instances.values()) == round(expected.demand.rate_per_s) + 2
