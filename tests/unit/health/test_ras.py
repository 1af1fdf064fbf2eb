"""Rules of verdicts on the status of NCCL's RAS service."""

from typing import Any

import pytest

from health.verdicts.ras import RasStatus, ras_status, ras_verdict
from health.verdicts.verdict import Cause, Part, Syndrome
from tests.builders.ras import answer, communicator, reduced

WORLD = range(8)
DEAD = {"unresponsive": True, "considered_dead": True}


def read(*communicators: dict[str, Any]) -> RasStatus:
    found = ras_status(answer(*communicators))
    assert found is not None
    return found


def said(*communicators: dict[str, Any]) -> tuple[Syndrome, Part, tuple[int, ...], Cause | None]:
    found = ras_verdict(read(*communicators), 0.0, read(*communicators))
    assert found is not None
    assert found.signals == "launches (NCCL RAS)"
    return found.syndrome, found.part, found.ranks, found.cause


def test_the_rank_that_launched_less_than_those_that_wait_for_it_is_named() -> None:
    found = said(communicator("0xa", WORLD, reduced(0, 1, 2, 3, 4, 6, 7)))

    assert found == (Syndrome.OTHER_HANG, Part.RANK, (5,), None)


def test_a_rank_that_waits_in_a_group_of_its_own_leads_to_the_one_that_holds_it_up() -> None:
    """Rank 4 launched nothing in the world, for it waits in the pair with 5, which does not come."""
    world = communicator("0xa", WORLD, reduced(0, 1, 2, 3, 6, 7))
    pair = communicator("0xb", (4, 5), reduced(4))

    assert said(world, pair) == (Syndrome.OTHER_HANG, Part.RANK, (5,), None)


def test_hosts_that_queued_unlike_many_operations_ahead_accuse_nobody_else() -> None:
    world = communicator("0xa", WORLD, {**reduced(0, 1, 2), **reduced(3, 4, more=9), **reduced(6, 7, more=2)})

    assert said(world)[:3] == (Syndrome.OTHER_HANG, Part.RANK, (5,))


def test_hosts_at_unlike_places_of_one_sequence_have_not_launched_different_operations() -> None:
    launched = {rank: {"ReduceScatter": 1, "AllGather": rank % 2} for rank in (0, 1, 2, 3, 4, 6, 7)}

    assert said(communicator("0xa", WORLD, launched)) == (Syndrome.OTHER_HANG, Part.RANK, (5,), None)


def test_ranks_that_launched_different_operations_are_the_programs_mistake() -> None:
    launched = {**reduced(0, 1, 2, 3, 4, 6, 7), 5: {"Broadcast": 1}}

    assert said(communicator("0xa", WORLD, launched)) == (Syndrome.NONE, Part.NOTHING, (5,), Cause.OPERATIONS)


@pytest.mark.parametrize(
    ("missing", "part"), [((5,), Part.RANK), ((4, 5), Part.NODE), ((1, 5), Part.NOTHING), ((4, 5, 6), Part.NOTHING)]
)
def test_processes_that_do_not_answer_are_dead(missing: tuple[int, ...], part: Part) -> None:
    world = communicator("0xa", WORLD, reduced(0), missing=dict.fromkeys(missing, DEAD))

    assert said(world)[:3] == (Syndrome.DEAD_PROCESS, part, missing)


def test_a_dead_process_is_told_at_once_also_while_others_still_launch() -> None:
    before = read(communicator("0xa", WORLD, {}))
    now = read(communicator("0xa", WORLD, reduced(0), missing={5: DEAD}))
    found = ras_verdict(now, 0.0, before)

    assert found is not None
    assert found.ranks == (5,)


def test_a_job_that_moves_has_no_verdict() -> None:
    before, now = read(communicator("0xa", WORLD, {})), read(communicator("0xa", WORLD, reduced(0, 1)))

    assert ras_verdict(now, 0.0, before) is None


def test_ranks_that_all_launched_the_same_are_left_open_with_a_probe() -> None:
    found = ras_verdict(read(communicator("0xa", WORLD, {})), 0.0)

    assert found is not None
    assert found.abstains
    assert "pair probes" in found.probe
    assert any("whether the job still moves" in each for each in found.evidence)


def test_an_error_of_its_own_names_a_rank_and_one_of_others_does_not() -> None:
    launched = communicator("0xa", WORLD, {}, errors={2: 6, 5: 1})
    found = ras_verdict(read(launched), 0.0)

    assert found is not None
    assert found.ranks == (5,)
    assert any("unhandled CUDA error" in each for each in found.evidence)


@pytest.mark.parametrize("made", [None, [], {}, {"communicators": 3}, "text"])
def test_what_is_no_status_is_none(made: object) -> None:
    assert ras_status(made) is None


def test_odd_entries_are_counted_and_cost_no_others() -> None:
    world = communicator("0xa", WORLD, reduced(0, 1, 2, 3, 4, 6, 7))
    world["ranks"] += [None, {"rank": "x"}, 7]
    stranger = communicator("0xc", (90, 91), {})
    made = ras_status(answer(world, stranger, {"hash": "0xd"}))

    assert made is not None
    found = ras_verdict(made, 0.0)
    assert found is not None
    assert found.ranks == (5,)
    assert any("ranks of smaller communicators alone" in each for each in found.evidence)
    assert any("communicators without ranks" in each for each in found.evidence)
