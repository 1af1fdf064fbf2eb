"""Status of a ModelService: ready only when its planned instances run, and unchanged while nothing changes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cluster.plans import Certificate, Reason, ServicePlan
from controller.api.model_service import KIND, ModelServiceStatus
from controller.report.service_status import ServiceFacts, service_status_after
from tests.builders.mix import of_types

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
