"""Decisions of a plan as they are reported: one for each, however many pods a gang has."""

import pytest

from cluster.actions import Action, Bind, Evict, Move, Scale
from cluster.errors import Mistake
from cluster.plans import Phase, Plan, Reason, ServicePlan, Step, Unplaced
from cluster.workloads import Gang
from controller.ports import Outcome, Undone
from controller.report.events import decisions_of, gangs_of, refusals_of
from tests.builders.fleet import node, pod, world
from tests.builders.mix import of_types

WHY = Reason("LeastCost", "least cost")
GANG_OF = gangs_of(
    world([node("a", gpus=8)], [*(pod(f"ns/g{n}", gpus=1, gang="ns/team") for n in range(3)), pod("ns/p", gpus=1)],
          gangs=[Gang("ns/team", 3)])
)  # fmt: skip


def bind(name: str, where: str = "a") -> Step:
    return Step(Bind(name, where, (0,)), WHY)


def plan(*steps: Step, unplaced: tuple[Unplaced, ...] = ()) -> Plan:
    return Plan(phases=(Phase("all", steps),), unplaced=unplaced)


def test_a_gang_that_starts_is_told_of_once() -> None:
    steps = (bind("ns/g0"), bind("ns/g1", "b"), bind("ns/g2"))

    (said,) = decisions_of(plan(*steps), Outcome(steps, ()), GANG_OF)

    assert (said.kind, said.name, said.action, said.is_warning) == ("Gang", "ns/team", "Starting", False)
    assert (said.happened, said.note) == ("Started", "3 members on a (2), b (1); LeastCost: least cost")


def test_a_gang_that_does_not_start_whole_is_told_of_once_with_the_first_failure() -> None:
    failed = Undone(bind("ns/g1"), Reason("ActionFailed", "status 409"))
    steps = (bind("ns/g0"), bind("ns/g2"))

    (said,) = decisions_of(plan(*steps), Outcome(steps, (failed,)), GANG_OF)

    assert said.is_warning
    assert said.reason.words == "1 of 3 members failed; the first: status 409"


def test_a_gang_that_is_stopped_is_told_of_once() -> None:
    steps = tuple(Step(Evict(f"ns/g{n}", "a"), Reason("GangTakenBack", "late")) for n in range(2))

    (said,) = decisions_of(plan(*steps), Outcome(steps, ()), GANG_OF)

    assert (said.action, said.happened) == ("Stopping", "Stopped")
    assert said.note == "2 members on a (2); GangTakenBack: late"


def test_a_pod_of_no_gang_is_told_of_by_itself() -> None:
    (said,) = decisions_of(plan(bind("ns/p")), Outcome((bind("ns/p"),), ()), GANG_OF)

    assert (said.kind, said.name) == ("Pod", "ns/p")
    assert (said.happened, said.note) == ("Placed", "on a, devices [0]; LeastCost: least cost")


def test_what_has_no_place_is_told_of_but_for_pods_that_do_not_exist_yet() -> None:
    short = Unplaced("Gang/ns/team", Reason("GangHeldBack", "too few"))
    to_come = Unplaced("Pod/ns/x", Reason("AwaitsPod", "soon"))

    (said,) = decisions_of(plan(unplaced=(short, to_come)), Outcome((), ()), GANG_OF)

    assert (said.kind, said.name, said.action, said.is_warning) == ("Gang", "ns/team", "Placing", True)
    assert (said.happened, said.note) == ("FailedScheduling", "GangHeldBack: too few")


@pytest.mark.parametrize(
    ("action", "code", "happened", "note"),
    [
        (Evict("ns/p", "a"), "Preempted", "Preempted", "from a; Preempted: why"),
        (Evict("ns/p", "a"), "NotBound", "Evicted", "from a; NotBound: why"),
        (Move("ns/p", "a", "b", (1,)), "EmptiesNode", "Moved", "from a to b, devices [1]; EmptiesNode: why"),
        (
            Scale("ns/s", of_types({"L4": 2, "A100": 0})),
            "CheapestMix",
            "Scaled",
            "to 0 × A100, 2 × L4; CheapestMix: why",
        ),
    ],
    ids=str,
)
def test_an_event_names_what_happened_and_its_note_why(action: Action, code: str, happened: str, note: str) -> None:
    step = Step(action, Reason(code, "why"))

    (said,) = decisions_of(plan(step), Outcome((step,), ()), GANG_OF)

    assert (said.happened, said.note, said.is_warning) == (happened, note, False)


@pytest.mark.parametrize(
    ("action", "happened"),
    [
        (Bind("ns/p", "a"), "FailedBinding"),
        (Evict("ns/p", "a"), "FailedEvicting"),
        (Move("ns/p", "a", "b"), "FailedMoving"),
        (Scale("ns/s", {}), "FailedScaling"),
    ],
    ids=str,
)
def test_an_action_that_failed_names_the_attempt_and_the_failure(action: Action, happened: str) -> None:
    failed = Undone(Step(action, WHY), Reason("ActionFailed", "status 409"))

    (said,) = decisions_of(plan(failed.step), Outcome((), (failed,)), GANG_OF)

    assert (said.happened, said.note, said.is_warning) == (happened, "ActionFailed: status 409", True)


def test_a_gang_that_gives_way_is_preempted() -> None:
    steps = tuple(Step(Evict(f"ns/g{n}", "a"), Reason("Preempted", "gives way")) for n in range(3))

    (said,) = decisions_of(plan(*steps), Outcome(steps, ()), GANG_OF)

    assert (said.kind, said.happened) == ("Gang", "Preempted")


def test_every_object_that_is_refused_is_told_of_once_and_a_pod_that_runs_is_not_refused() -> None:
    now = world([node("a", gpus=8)], [pod("ns/runs", gpus=1, on="a", devices=(0,))])
    wrong = [
        Mistake("Gang/ns/team, spec", "has more than 100 levels", "nest less deeply"),
        Mistake("Node/a, metadata.labels", "mean two GPU types", "a node has one type"),
        Mistake("Pod/ns/waits, spec.affinity", "has 600 requirements and values"),
        Mistake("Pod/ns/waits, spec.tolerations", "has 200 tolerations"),
        Mistake("Pod/ns/runs, metadata.annotations", "is 'maybe'"),
    ]
    services = (
        ServicePlan("ns/chat", {}, 0.0, None, None, refusal=Reason("BadInput", "several services have this name")),
        ServicePlan("ns/full", {}, 0.0, None, None, refusal=Reason("NoStock", "no GPU is left")),
    )

    said = {(each.kind, each.name): each for each in refusals_of(now, wrong, Plan(services=services))}

    assert set(said) == {("Gang", "ns/team"), ("Node", "a"), ("Pod", "ns/waits"), ("ModelService", "ns/chat")}
    assert {(each.happened, each.action, each.is_warning) for each in said.values()} == {
        ("BadInput", "Accepting", True)
    }
    note = said["Pod", "ns/waits"].note
    assert note == "spec.affinity: has 600 requirements and values; spec.tolerations: has 200 tolerations"
