"""Plan records: a plan goes into them and comes out of them whole, however long it is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.actions import Action, Bind, Evict, Move, Scale, SetPowerLease
from cluster.plans import Phase, Plan, Reason, Step
from controller.api.plan_record import LONGEST_WORDS, MAX_PHASES, MAX_STEPS, PlanRecordSpec, PlanRecordStatus
from controller.plan_records import plan_from, specs_from, statuses_from
from controller.world import Outcome, Undone

NOON_S = 1_772_366_400.0
WHY = Reason("Because", "so it is")


def step(action: Action) -> Step:
    return Step(action, WHY)


def binds(count: int, first: int = 0) -> tuple[Step, ...]:
    return tuple(step(Bind(f"ns/p{n}", f"n{n % 7}", (n % 8,))) for n in range(first, first + count))


def specs(*phases: Phase) -> tuple[PlanRecordSpec, ...]:
    return specs_from(Plan(phases), name="7", epoch=3, observed_at_s=NOON_S)


def written(spec: PlanRecordSpec) -> PlanRecordSpec:
    """By way of the JSON that the API server stores."""
    return PlanRecordSpec.model_validate(json.loads(json.dumps(spec.plain())))


def test_every_action_goes_into_a_record_and_comes_out_of_it() -> None:
    phase = Phase(
        "all",
        (
            step(Bind("ns/a", "n1", (0, 3))),
            step(Evict("ns/b", "n2")),
            step(Move("ns/c", "n1", "n2", (1,))),
            step(Scale("ns/chat", {"a100": 2, "l4": 0})),
            step(SetPowerLease("n1", {"GPU-1": 300.0}, sequence=4, epoch=2)),
        ),
        whole=True,
    )

    assert plan_from(map(written, specs(phase))) == Plan((phase,))


@settings(max_examples=20)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 2 * MAX_STEPS + 1), st.booleans()), max_size=4),
    small=st.integers(0, MAX_PHASES + 1),
)
def test_a_plan_comes_back_whole_however_it_is_cut(sizes: list[tuple[int, bool]], small: int) -> None:
    phases = tuple(
        Phase(f"phase {n}", binds(size, first=10_000 * n), whole)
        for n, (size, whole) in enumerate([(1, False)] * small + sizes)
    )

    parts = specs(*phases)

    assert all(sum(len(phase.steps) for phase in part.phases) <= MAX_STEPS for part in parts)
    assert all(len(part.phases) <= MAX_PHASES for part in parts)
    assert plan_from(reversed(parts)) == Plan(phases)


def test_a_plan_that_does_nothing_needs_no_record() -> None:
    assert specs() == ()
    assert plan_from(()) == Plan()


def test_parts_of_two_plans_or_too_few_parts_are_no_plan() -> None:
    first, second = specs(Phase("long", binds(MAX_STEPS + 1)))

    with pytest.raises(ValueError, match="not all parts"):
        plan_from((first,))
    with pytest.raises(ValueError, match="not all parts"):
        plan_from((first, second.model_copy(update={"epoch": 4})))


def test_the_largest_record_of_binds_is_one_that_etcd_takes() -> None:
    pod = f"{'n' * 63}/{'p' * 253}"
    longest = Step(Bind(pod, "x" * 253, tuple(range(16))), Reason("C" * 64, "w" * 1000))

    (spec,) = specs(Phase("all", (longest,) * MAX_STEPS))

    # 1,000 steps of 1,034 bytes each; etcd refuses requests above 1.5 MiB.
    assert len(json.dumps(spec.plain()).encode()) < 2**20
    assert len(spec.phases[0].steps[0].reason.words) == LONGEST_WORDS


def test_a_record_says_of_every_step_what_became_of_it() -> None:
    steps = (*binds(3), step(Scale("ns/chat", {"a100": 2})))
    lost = Undone(steps[1], Reason("ActionFailed", "no such node"))

    (status,) = statuses_from(
        specs(Phase("all", steps)), Outcome((steps[0], steps[3]), (lost,)), generation=1, at_s=NOON_S
    )

    assert status.done == (0, 3)
    assert [(each.step, each.reason.code) for each in status.undone] == [(1, "ActionFailed")]
    assert status.conditions[0].plain() == {
        "type": "Applied",
        "status": "False",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-03-01T12:00:00Z",
        "reason": "StepsUndone",
        "message": "2 of 4 steps done, 1 not done",
    }


def test_each_part_of_a_plan_tells_of_its_own_steps() -> None:
    steps = binds(MAX_STEPS + 2)

    first, second = statuses_from(specs(Phase("all", steps)), Outcome(steps), generation=1, at_s=NOON_S)

    assert (len(first.done), second.done) == (MAX_STEPS, (0, 1))
    assert [s.conditions[0].status for s in (first, second)] == ["True", "True"]


def test_a_step_that_was_taken_back_is_not_done() -> None:
    (one,) = binds(1)
    back = Undone(one, Reason("TakenBack", "the gang broke"))

    (status,) = statuses_from(specs(Phase("gang", (one,), whole=True)), Outcome((one,), (back,)), generation=1, at_s=0)

    assert (status.done, [each.step for each in status.undone]) == ((), [0])


def test_a_record_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    (spec,) = specs(Phase("all", binds(1)))
    later = {**spec.plain(), "urgency": 3}

    assert PlanRecordSpec.model_validate(later) == spec
    assert PlanRecordStatus.model_validate({"done": [0], "weather": "fine"}).done == (0,)
