"""Rules of the benchmark of clean jobs: what it looks at, and that a fault in it would be found."""

from dataclasses import replace

import numpy as np

from health.analysis.excess import Tier
from health.verdicts.verdict import Part
from tests.rigs.health import clean_job, clean_verdicts
from tests.rigs.health.clean_job import BASELINE, STEP_S, Block, InUse, job_looked_at
from tests.rigs.health.clean_verdicts import LONGEST


def block_of(seed: int) -> tuple[Block, InUse]:
    job, _, slim, _ = job_looked_at()
    return clean_job.block_of(job, slim, np.random.default_rng(seed)), slim


def test_a_slow_rank_among_clean_ones_is_blamed() -> None:
    _, layout, slim, used = job_looked_at()
    block, _ = block_of(5)
    compute_s = block.compute_s.copy()
    compute_s[BASELINE + LONGEST : BASELINE + LONGEST + 6, 77] += 0.3 * STEP_S

    found = list(clean_verdicts.found_in(replace(block, compute_s=compute_s), layout, slim, used))

    assert {(verdict.part, verdict.ranks) for verdict in found if verdict.blames} == {(Part.RANK, (77,))}


def test_steps_that_no_window_could_stand_out_in_are_all_that_is_skipped() -> None:
    random = np.random.default_rng(2)
    excess = random.random((60, 40)) < 0.4
    tier = Tier(5, 0.1)

    crowded = set(clean_verdicts.crowded(excess, tier.steps, 3).tolist())

    needed = {column for column in range(40) for end in range(5, 61) if excess[end - 5 : end, column].sum() >= 3}
    assert needed <= crowded


def test_a_node_is_quarantined_for_what_lasts_and_not_for_what_passes() -> None:
    _, layout, slim, used = job_looked_at()
    block, _ = block_of(5)
    taken = {}
    for steps in (6, 80):
        compute_s = block.compute_s.copy()
        compute_s[BASELINE + LONGEST : BASELINE + LONGEST + steps, 77] += 0.5 * STEP_S
        slower = replace(block, compute_s=compute_s)
        seen = [each for each in clean_verdicts.found_in(slower, layout, slim, used) if not each.cause]
        taken[steps] = clean_verdicts.is_quarantined(slower, seen, layout)

    assert taken == {6: False, 80: True}
