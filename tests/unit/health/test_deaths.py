"""Deaths: the rank that was lost, where a launcher has ended others meanwhile."""

import tracemalloc

import numpy as np
import pytest

from health.analysis.excess import Pulse
from health.analysis.last_words import Errors, lost
from health.records.frames import RECORD
from health.records.layout import Layout
from tonnage.records import Failure, Kind, Role

RANKS = 8


def ring(ranks_per_node: int, ranks: int = RANKS) -> Layout:
    """One data-parallel group of all ranks."""
    every = np.arange(ranks)
    return Layout(
        node=every // ranks_per_node,
        nic=every,
        stage=np.zeros(ranks, np.int64),
        replica=every,
        group_of=np.zeros((ranks, 1), np.int64),
        index_of=every[:, None],
        role=np.array([Role.DATA]),
        groups=(every,),
    )


def named(first_to_fail: list[int], silent: list[int], ranks_per_node: int = 1) -> tuple[int, ...]:
    errors = Errors()
    count = len(first_to_fail)
    at_s = np.asarray(10.0 + 0.02 * np.arange(count), np.float64)
    errors.add(np.array(first_to_fail), np.zeros(count, np.int64), at_s, np.full(count, int(Failure.CONNECTION)))
    silent_s = np.where(np.isin(np.arange(RANKS), silent), 0.6, 0.1)
    found = lost(errors, ring(ranks_per_node), silent_s, np.zeros(RANKS, np.bool_))
    assert found is not None
    return found.ranks


@pytest.mark.parametrize(
    ("first_to_fail", "silent", "is_named"),
    [
        ([6, 0, 5, 4, 3], [1, 2, 7], (7,)),  # the errors spread both ways from 7, and 1 and 2 were ended meanwhile
        ([6, 0, 5, 4, 3, 2, 1], [7], (7,)),
        ([6, 0, 1], [3, 5, 7], (3, 5, 7)),  # two are neighbours of the first
        ([4, 0, 1], [2, 7], (2, 7)),  # none is
    ],
)
def test_of_several_silent_ranks_the_one_next_to_the_first_error_is_named(
    first_to_fail: list[int], silent: list[int], is_named: tuple[int, ...]
) -> None:
    assert named(first_to_fail, silent) == is_named


def test_a_node_that_is_lost_stays_whole() -> None:
    assert named([4, 1, 5], [2, 3], ranks_per_node=2) == (2, 3)
    assert named([4, 1, 5], [0, 2, 3], ranks_per_node=2) == (2, 3)  # rank 0 was ended with its launcher


def failed(errors: Errors, ranks: np.ndarray) -> None:
    """Adds an error of each of these ranks in the one group, the first of them first."""
    count = len(ranks)
    at_s = np.asarray(10.0 + 1e-6 * np.arange(count), np.float64)
    errors.add(ranks, np.zeros(count, np.int64), at_s, np.full(count, int(Failure.CONNECTION)))


def test_a_death_in_a_large_group_costs_no_memory_for_each_error() -> None:
    """A set of all members for each error took 3.4 GB where one of 5,000 ranks died, and ten seconds at every look."""
    ranks = 1024
    layout, errors = ring(8, ranks), Errors()
    silent_s = np.where(np.arange(ranks) == ranks - 1, 0.6, 0.1)
    tracemalloc.start()
    try:
        failed(errors, np.arange(ranks - 1))
        found = lost(errors, layout, silent_s, np.zeros(ranks, np.bool_))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found is not None
    assert (found.ranks, found.errors, found.since_s) == ((ranks - 1,), ranks - 1, 10.0)
    assert peak_bytes < 1_000_000


def test_a_job_that_repeats_its_errors_takes_no_memory_for_them() -> None:
    errors = Errors()
    tracemalloc.start()
    try:
        for _ in range(100):
            failed(errors, np.zeros(1000, np.int64))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < 100_000


def test_a_rank_that_was_never_heard_is_named_once_it_would_have_been() -> None:
    """It died before its first heartbeat, or while a group that was joined late began the analysis anew."""
    pulse, errors = Pulse(ring(1)), Errors()
    failed(errors, np.array([6, 0, 1]))
    for now_s in (10.0, 10.25, 10.5):
        beats = np.zeros(RANKS - 1, RECORD)
        beats["kind"] = Kind.BEAT
        rank, none = np.arange(RANKS - 1), np.full(RANKS - 1, -1)
        pulse.beat(beats, rank, none, none, none, now_s)

    def found(now_s: float) -> tuple[int, ...] | None:
        dead = lost(errors, ring(1), pulse.silent_s(now_s), pulse.ended)
        return None if dead is None else dead.ranks

    assert found(10.5) is None  # its first heartbeat may be on its way
    assert found(10.6) == (7,)
