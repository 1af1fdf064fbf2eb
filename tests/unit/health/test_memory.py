"""Memory of one job's analysis: what is counted of it is what it takes, and it is bounded whatever the job writes."""

import tracemalloc

import numpy as np
import pytest

from health.analysis import matching
from health.analysis.matching import Finished, Matcher, most_pending
from health.records.layout import layout_from
from health.stream import Analyser
from tests.rigs.health.cases import case
from tests.rigs.health.job import DisturbanceKind, TrainingJob


def test_what_is_counted_is_what_it_takes_beside_the_records_of_one_look() -> None:
    made = case(5, kind=DisturbanceKind.SLOW_RANK, ranks=128)
    ticks = list(made.transcript.ticks())
    tracemalloc.start()
    try:
        analyser = Analyser(made.layout)
        counted = 0
        for at_s, frames in ticks:
            analyser.take(frames, at_s)
            analyser.judge(at_s)
            counted = max(counted, analyser.held_bytes)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    looked_at = 25 * max(len(frames) for _, frames in ticks)  # columns of the records of one look; one at a time
    assert counted < peak_bytes < counted + looked_at


def test_records_whose_operations_never_end_are_dropped_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MOST_PENDING", 100)
    job = TrainingJob(tensor=2, data=1, pipeline=1, gpus_per_node=2)
    matcher = Matcher(layout_from(job.introductions(), node=job.node, nic=job.nic))
    count = 150
    nothing, seq = np.zeros(count, np.int64), np.arange(count)
    alone = Finished(nothing, seq, nothing, nothing, seq, np.zeros(count), np.ones(count))

    matcher.match(alone)

    assert matcher.dropped == 50
    assert matcher.pending_bytes == 100 * 100
    assert most_pending(2) == 100


def test_a_small_job_may_have_fewer_records_that_wait_than_a_large_one() -> None:
    assert most_pending(8) < most_pending(1024) < most_pending(10_240) == matching.MOST_PENDING
