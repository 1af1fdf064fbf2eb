"""Analysis of a large job in a process of its own: the same verdicts, and no process outlives its use."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from controller.loops.health.analyser_process import MOST_BYTES, AnalyserError, AnalyserProcess, BySize
from health.stream import Analyser
from health.verdicts.verdict import Fact, FactKind, JobVerdict
from tests.rigs.health.cases import Case, case
from tests.rigs.health.job import DisturbanceKind

WITHIN_S = 30.0


@cache
def slow() -> Case:
    return case(3, kind=DisturbanceKind.SLOW_RANK, ranks=16)


@pytest.fixture
def process() -> Iterator[AnalyserProcess]:
    made = AnalyserProcess(slow().layout)
    yield made
    made.close()


def until(done: Callable[[], object]) -> None:
    ends_s = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < ends_s, "it was waited for in vain"
        time.sleep(0.005)


def answered(process: AnalyserProcess, now_s: float, facts: tuple[Fact, ...]) -> tuple[JobVerdict, ...]:
    """Verdicts of one request, once they have arrived."""
    found = process.judge(now_s, facts)
    until(lambda: not process._child.is_asked)
    return (*found, *(each for new, _ in process._child.taken() for each in new))


def test_verdicts_are_those_of_the_analyser(process: AnalyserProcess) -> None:
    here, facts = Analyser(slow().layout), (Fact(FactKind.POWER_CAP, 3, 0.0, 0.9),)
    expected: list[JobVerdict] = []
    found: list[JobVerdict] = []
    for now_s, frames in slow().transcript.ticks():
        here.take(frames, now_s)
        process.take(frames, now_s)
        expected += here.judge(now_s, facts)
        found += answered(process, now_s, facts)

    assert found == expected
    assert any(each.blames for each in expected)


def test_a_process_that_is_killed_fails_the_job_and_not_its_caller(process: AnalyserProcess) -> None:
    process.process.kill()

    def fails() -> bool:
        try:
            process.judge(0.0)
        except AnalyserError:
            return True
        return False

    until(fails)


def test_records_that_break_the_analysis_are_told_by_kind_and_place_alone(process: AnalyserProcess) -> None:
    process.take(b"a tenant's secret value", 0.0)  # no whole record

    with pytest.raises(AnalyserError, match=r"ValueError in frames\.py, line \d+$"):
        until(lambda: process.judge(0.0))


def test_frames_that_are_not_read_in_time_are_given_up_the_oldest_first(process: AnalyserProcess) -> None:
    os.kill(process.process.pid, signal.SIGSTOP)
    chunk = bytes(MOST_BYTES // 2 - 1024)
    process.take(chunk, 0.0)
    until(lambda: not process._child._waiting)  # they are on their way
    process.take(chunk, 1.0)
    process.take(chunk, 2.0)

    process.take(chunk, 3.0)

    assert process.lost == 1
    assert [now_s for _, now_s in process._child._waiting] == [2.0, 3.0]


def test_its_process_ends_with_the_last_reference() -> None:
    made = AnalyserProcess(slow().layout)
    child = made.process

    del made

    assert child.returncode is not None


def test_only_large_jobs_and_few_of_them_get_a_process_of_their_own() -> None:
    small, large = BySize(apart_ranks=17), BySize(apart_ranks=16, most=1)

    assert isinstance(small(slow().layout), Analyser)
    first = large(slow().layout)
    assert isinstance(first, AnalyserProcess)
    assert isinstance(large(slow().layout), Analyser)
    del first
    assert isinstance(large(slow().layout), AnalyserProcess)


def test_a_step_of_the_clock_delays_no_verdict(process: AnalyserProcess) -> None:
    answered(process, 1_000_000.0, ())

    process.judge(10.0)

    assert process._child.is_asked
