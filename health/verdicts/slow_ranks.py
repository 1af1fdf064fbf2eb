"""Slow ranks: the rank or node that computes longer than before, and imbalances that look alike."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from health.analysis.excess import Baseline, Standing, Tier, compute_excess, compute_pace, standing
from health.records.layout import Layout
from health.verdicts.verdict import Cause, JobVerdict, Part, Syndrome

ALIKE = 0.6
"""Share of the largest excess from which a rank counts among those slowed by the same cause."""
MOST_OF = 0.8
"""Share of a replica, stage or node that must be slow for it to be what is slow."""
ALL_SLOW = 1.07
"""Pace from which the whole job counts as slower than before."""
STAGES_APART = 1.15
"""Computing time of a stage over the median stage's from which stages are imbalanced."""
UNEVEN_SHARE = 0.06
"""Excess of the worst replica, as a share of the step, from which replicas are unevenly loaded."""
MATES = 3
"""Ranks of a replica whose median tells what its data adds to a step."""
SEVERAL = 3
"""Most ranks that are blamed one by one; more of them in no common place have a common cause elsewhere."""

MATRIX_PRODUCT = "a matrix product on these ranks and on as many others"


def slow_ranks(
    compute_s: FloatArray,
    baseline: Baseline,
    speed_share: FloatArray,
    layout: Layout,
    tiers: tuple[Tier, ...],
    named: Collection[int] = (),
) -> tuple[IntArray, Standing | None]:
    """Ranks that stand out in the shortest window that sees any, and that window.

    named: ranks that were found before: what stands out beside them is a fault of its own.
    """
    for tier in tiers:
        if len(compute_s) < tier.steps:
            continue
        excess = compute_excess(compute_s[-tier.steps :], baseline, speed_share)
        excess[:, list(named)] = 0.0
        found = standing(excess, baseline.compute_noise, tier, baseline.steps)
        if not found.out.any():
            continue
        limit = ALIKE * float(found.excess[found.out].max())
        alike = np.flatnonzero(found.excess >= limit)
        own = np.zeros(layout.ranks, np.bool_)
        own[alike] = np.median(_beyond_replica(excess, alike, layout), axis=0) >= limit
        if (found.out & own).any():
            return alike, replace(found, out=found.out & own)
    return np.zeros(0, np.int64), None


def _beyond_replica(excess: FloatArray, ranks: IntArray, layout: Layout) -> FloatArray:
    """Shape (steps, len(ranks)): excess beyond that of the replica's other ranks in the same step, which is its data's.

    A rank whose replica is uneven in some steps and which stalls in another is no slow rank. Where fewer than MATES
    others are left in the replica, the excess as it is.
    """
    own = excess[:, ranks]
    for replica in np.unique(layout.replica[ranks]):
        mates = layout.replica == replica
        mates[ranks] = False
        if mates.sum() >= MATES:
            own[:, layout.replica[ranks] == replica] -= np.median(excess[:, mates], axis=1)[:, None]
    return own


def blamed(
    ranks: IntArray,
    found: Standing,
    layout: Layout,
    at_s: float,
    since_s: float,
    *,
    causes: bool,
    behind: BoolArray | None = None,
) -> Iterator[JobVerdict]:
    """Verdicts on slow ranks; with `causes`, ranks of one replica or stage are an imbalance and no fault.

    behind: ranks that were slow from the first step, as the baseline knows them.
    """
    share = float(found.excess[ranks].max())
    than = "before" if behind is None or not behind[ranks].any() else "its peers from the first step on"
    shown = f"computes {share:.0%} of a step longer than {than} and than the job's pace, over {found.tier.steps} steps"

    def verdict(part: Part, on: IntArray, note: str, cause: Cause | None = None, probe: str = "") -> JobVerdict:
        syndrome = Syndrome.NONE if cause else Syndrome.OTHER_SLOW
        confidence = min(0.99, share / (2 * found.tier.least_share))
        return JobVerdict(at_s, syndrome, part, tuple(on.tolist()), since_s, confidence, (shown, note), cause, probe)

    nodes, firsts = np.unique(layout.node[ranks]), np.unique(layout.node, return_index=True)[1]
    # A program may well give more to do to the first rank of the job, or to those of several nodes.
    has_duties = ranks.tolist() == [0] or (
        1 < len(firsts) < layout.ranks and len(ranks) > 1 and set(ranks) <= set(firsts)
    )
    if causes and (imbalance := _imbalance(ranks, layout)) is not None:
        cause, note = imbalance
        yield verdict(Part.NOTHING, ranks, note, cause)
    elif len(nodes) == 1 and len(ranks) > 1 and _covers(ranks, layout.node == nodes[0]):
        if causes and _is_a_replica(ranks, layout):
            probe = "a matrix product on this node and on a control: a node's own slowness shows, its data's does not"
            yield verdict(
                Part.NOTHING, ranks, "the node holds one whole replica, whose data may be longer", probe=probe
            )
        else:
            yield verdict(Part.NODE, np.flatnonzero(layout.node == nodes[0]), "all ranks of the node alike")
    elif has_duties and behind is not None and behind[ranks].all():
        yield verdict(
            Part.NOTHING, ranks, "first ranks, of the job or of nodes, may have more to do", probe=MATRIX_PRODUCT
        )
    elif len(ranks) <= SEVERAL:
        for rank in ranks[found.out[ranks]]:
            yield verdict(Part.RANK, np.array([rank]), "alone in its stage")
    else:
        yield verdict(Part.NOTHING, ranks, "several ranks of no common node, replica or stage", probe=MATRIX_PRODUCT)


def _imbalance(ranks: IntArray, layout: Layout) -> tuple[Cause, str] | None:
    """The imbalance that explains these ranks: a replica or a stage over several nodes shares no hardware."""
    if len(np.unique(layout.node[ranks])) < 2:
        return None
    if _is_a_replica(ranks, layout):
        return Cause.DATA_IMBALANCE, "all stages of one replica alike, on several nodes: its data, not its hardware"
    stages = np.unique(layout.stage[ranks])
    if len(stages) == 1 and layout.stage.max() > 0 and _covers(ranks, layout.stage == stages[0]):
        return Cause.STAGE_IMBALANCE, "all replicas of one stage alike, on several nodes"
    return None


def _is_a_replica(ranks: IntArray, layout: Layout) -> bool:
    replicas = np.unique(layout.replica[ranks])
    return len(replicas) == 1 and bool(layout.replica.max() > 0) and _covers(ranks, layout.replica == replicas[0])


def _covers(ranks: IntArray, whole: BoolArray) -> bool:
    return len(ranks) > 1 and len(ranks) >= MOST_OF * int(whole.sum())


def capped(
    compute_s: FloatArray, baseline: Baseline, speed_share: FloatArray, tier: Tier, causes: Sequence[Cause | None]
) -> Iterator[tuple[Cause, IntArray]]:
    """Ranks that our own limits slow as much as expected, by limit."""
    if len(compute_s) < tier.steps:
        return
    raw = standing(
        compute_excess(compute_s, baseline, np.ones(len(speed_share))), baseline.compute_noise, tier, baseline.steps
    )
    for cause in (Cause.POWER_CAP, Cause.THROTTLED):
        ranks = np.flatnonzero(raw.out & np.array([each is cause for each in causes]))
        if len(ranks):
            yield cause, ranks


def imbalances(compute_s: FloatArray, baseline: Baseline, layout: Layout, tier: Tier) -> Iterator[tuple[Cause, str]]:
    """Causes of slow steps that concern no rank in particular."""
    if len(compute_s) < tier.steps:
        return
    window = compute_s[-tier.steps :]
    pace = compute_pace(window, baseline)
    if np.median(pace) >= ALL_SLOW and (pace >= (1 + ALL_SLOW) / 2).mean() >= MOST_OF:
        yield Cause.ALL_SLOW, f"all ranks compute {np.median(pace) - 1:.0%} longer than before"
    replicas, stages = int(layout.replica.max()) + 1, int(layout.stage.max()) + 1
    if replicas > 1:
        excess = compute_excess(window, baseline, np.ones(layout.ranks))
        load = np.zeros((len(excess), replicas))
        np.add.at(load.T, layout.replica, excess.T)
        load /= np.bincount(layout.replica, minlength=replicas)
        often = np.bincount(load.argmax(axis=1)).max() / len(load)
        share = float(np.median(load.max(axis=1)))
        if share >= UNEVEN_SHARE and often < 0.6:
            yield Cause.DATA_IMBALANCE, f"another replica is the slowest in each step, by {share:.0%} of it"
    if stages > 1:
        per_stage = np.array([np.median(baseline.compute_s[layout.stage == stage]) for stage in range(stages)])
        apart = per_stage / max(float(np.median(per_stage)), 1e-9)
        worst = int(apart.argmax())
        if apart[worst] >= STAGES_APART:
            note = f"stage {worst} computes {apart[worst] - 1:.0%} longer than the median stage"
            yield Cause.STAGE_IMBALANCE, note
