"""Status of a ModelService: ready only when its planned instances run, and unchanged while nothing changes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from cluster.demand import DeferredWork
from cluster.plans import Certificate, Reason, ServicePlan
from controller.api.model_service import KIND, ModelServiceStatus
from controller.report.fleet_metrics import Draw
from controller.report.service_status import ServiceFacts, service_status_after, steady
from tests.builders.mix import of_types, service

PLAN = ServicePlan("ns/chat", of_types({"a100": 2}), 6.0, None, Certificate(6.0, 5.0, "HiGHS", 0.1))
FACTS = ServiceFacts(
    generation=3, asked=of_types({"a100": 2}), running=of_types({"a100": 2}), makes_pods=True, undone=None
)
REFUSED = replace(PLAN, instances={}, refusal=Reason("NoProfile", "nobody measured it"))


def said(
    plan: ServicePlan = PLAN, facts: ServiceFacts = FACTS, before: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    return service_status_after(before or {}, plan, facts, 1_000_000.0)


def condition(status: Mapping[str, Any], kind: str) -> tuple[str, str]:
    found = next(each for each in status["conditions"] if each["type"] == kind)
    return found["status"], found["reason"]


def test_a_service_is_ready_when_all_instances_of_its_mix_run() -> None:
    status = said()

    assert condition(status, "Ready") == ("True", "AllInstancesRun")
    assert (status["wantedInstances"], status["runningInstances"], status["costPerHour"]) == (2, 2, 6.0)
    assert status["gap"] == pytest.approx(1 / 6, abs=1e-6)  # (6 - 5) / 6


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(FACTS, running=of_types({"a100": 1})), "InstancesMissing"),
        (replace(FACTS, asked=of_types({"a100": 1})), "Scaling"),
        (replace(FACTS, asked=of_types({"a100": 2, "l4": 1})), "Scaling"),
        (replace(FACTS, undone=Reason("ActionFailed", "409")), "ActionFailed"),
    ],
)
def test_it_is_not_ready_while_anything_is_missing(facts: ServiceFacts, reason: str) -> None:
    assert condition(said(facts=facts), "Ready") == ("False", reason)


def test_a_service_that_is_only_planned_tells_its_mix_and_not_whether_it_runs() -> None:
    facts = replace(FACTS, makes_pods=False, asked={}, running={})
    status = said(facts=facts)

    assert condition(status, "Ready") == ("Unknown", "PlannedOnly")
    assert status["mix"] == {"a100": 2}
    assert "replicas" not in status
    (shown,) = (each.path for each in KIND.columns if each.name == "Mix")
    assert shown == ".status.mix"
    assert service_status_after(status, PLAN, facts, 2_000_000.0) == status
    assert said(REFUSED, facts, status)["mix"] == {"a100": 2}


def test_every_condition_tells_the_generation_that_was_planned_for() -> None:
    assert {each["observedGeneration"] for each in said()["conditions"]} == {3}


def test_a_service_that_was_refused_keeps_its_cost_and_is_degraded_while_instances_run() -> None:
    status = said(REFUSED, before=said())

    assert condition(status, "Planned") == ("False", "NoProfile")
    assert condition(status, "Degraded") == ("True", "NotPlanned")
    assert status["costPerHour"] == 6.0


def test_what_was_said_is_said_in_the_same_words() -> None:
    assert service_status_after(said(), PLAN, FACTS, 2_000_000.0) == said()


def test_a_proof_is_not_given_up_for_a_weaker_one() -> None:
    weaker = replace(PLAN, certificate=Certificate(6.0, 4.0, "HiGHS", 0.1))

    assert said(weaker, before=said())["boundPerHour"] == 5.0
    assert said(weaker, replace(FACTS, generation=4), before=said())["boundPerHour"] == 4.0


def test_a_search_that_goes_on_writes_no_status_for_each_small_step_of_its_proof() -> None:
    def proven(bound: float) -> ServicePlan:
        return replace(PLAN, certificate=Certificate(6.0, bound, "HiGHS", 0.1))

    assert said(proven(5.005), before=said()) == said()
    assert said(proven(5.007), before=said())["boundPerHour"] == 5.007


def test_the_time_of_scaling_moves_only_with_the_replicas() -> None:
    first = said()
    same = service_status_after(first, PLAN, replace(FACTS, running={}), 2_000_000.0)
    other = service_status_after(first, PLAN, replace(FACTS, asked=of_types({"a100": 3})), 2_000_000.0)

    assert (ModelServiceStatus.read(same).last_scale_time, ModelServiceStatus.read(other).last_scale_time) == (
        1_000_000.0,
        2_000_000.0,
    )


def test_a_service_scaled_to_zero_leaves_its_maps_out() -> None:
    """Applied as empty, a map that has keys becomes null on the server, which refuses the whole status for that."""
    none = said(replace(PLAN, instances={}), replace(FACTS, asked={}, running={}), before=said())

    assert not {"replicas", "running"} & set(none)
    assert (none["wantedInstances"], none["runningInstances"]) == (0, 0)
    assert (
        ModelServiceStatus.read(
            service_status_after(none, replace(PLAN, instances={}), replace(FACTS, asked={}, running={}), 2e6)
        ).last_scale_time
        == 1e6
    )


def test_a_service_says_why_no_pods_are_created_for_it() -> None:
    """As a ReplicaSet does where Pod Security, a RuntimeClass or a quota refuses its pods."""
    why = 'pods "chat-a100-x" is forbidden: violates PodSecurity "restricted:latest"'

    status = said(facts=replace(FACTS, running={}, no_pods=why))

    (ready,) = (each for each in status["conditions"] if each["type"] == "Ready")
    assert (ready["reason"], why in ready["message"]) == ("InstancesMissing", True)


def batch_status(deadline_s: float, before: Mapping[str, Any], at_s: float) -> Mapping[str, Any]:
    """Progress of a batch of which one request per second is answered."""
    asked = replace(service(rate=1.0), deferred=DeferredWork(1000.0, deadline_s, 1.0), deferred_per_s=1.0)
    found: Mapping[str, Any] = service_status_after(before, PLAN, replace(FACTS, service=asked), at_s)
    return found


def test_another_batch_begins_anew_and_the_same_one_goes_on() -> None:
    first = batch_status(2_000_000.0, {}, 1_000_000.0)
    later = batch_status(2_000_000.0, first, 1_000_100.0)
    other = batch_status(3_000_000.0, later, 1_000_101.0)

    assert [each["batch"]["done"] for each in (first, later, other)] == [0.0, 100.0, 0.0]


def test_a_draw_that_moves_all_the_time_is_told_of_once_a_minute_and_one_that_hardly_moves_never() -> None:
    def told(draws: Sequence[float]) -> list[float]:
        known: dict[str, tuple[Draw, float]] = {}
        written = []
        for second, per_token_j in enumerate(draws):
            known = steady({"ns/chat": Draw(100.0, per_token_j)}, known, float(second))
            written.append(known["ns/chat"][0].per_token_j or 0.0)
        return [after for before, after in pairwise(written) if before != after]

    assert told([1.0, 1.05, 0.96] * 100) == []
    assert len(told([1.0, 2.0] * 150)) <= 300 / 60 + 1
    assert told([1.0] * 100 + [2.0] * 100) == [2.0]
