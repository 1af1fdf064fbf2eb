"""Verdicts on recorded jobs of eight real gloo ranks."""

from pathlib import Path

import numpy as np
import pytest

from health.records.frames import decoded
from health.records.layout import layout_from
from health.stream import Analyser
from health.verdicts.verdict import Part, Syndrome
from tests.rigs.health.recorded import recording

RIGHT = {
    "baseline": None,
    "comm_slow_nic_r4": (Syndrome.COMMUNICATION_SLOW, Part.NIC, (4,)),
    "noncomm_hang_r3": (Syndrome.OTHER_HANG, Part.RANK, (3,)),
    "noncomm_slow_r5": (Syndrome.OTHER_SLOW, Part.RANK, (5,)),
}


@pytest.mark.data
@pytest.mark.parametrize("name", RIGHT)
def test_the_faulty_rank_or_nic_of_a_recorded_job_is_named_within_five_seconds(public_data: Path, name: str) -> None:
    job = recording(public_data / "health" / name)
    layout = layout_from(decoded(job.introductions), node=np.arange(job.ranks), nic=np.arange(job.ranks))
    analyser = Analyser(layout)
    blamed = []
    for now_s, frames in job.ticks:
        analyser.take(frames, now_s)
        blamed += [verdict for verdict in analyser.judge(now_s) if verdict.blames]

    assert [(verdict.syndrome, verdict.part, verdict.ranks) for verdict in blamed] == [RIGHT[name]] * bool(RIGHT[name])
    assert all(0 < verdict.at_s - job.fault_s <= 5.0 for verdict in blamed)
