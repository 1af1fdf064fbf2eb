"""Slow paths: the NIC, link or group behind transfers that take longer than before."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from health.analysis.excess import Baseline, Tier, standing, transfer_excess
from health.records.layout import Layout
from health.verdicts.verdict import Cause, JobVerdict, Part, Syndrome

LEAST_RATIO = 1.2
"""Slow-down from which a path counts as slow."""
PATH_LEAST = 0.2
"""Share of a tier's least excess that a single path must reach: a NIC's excess is spread over its paths."""
EXPLAINED = 0.85
"""Share of all excess that one part must explain to be named."""
TELLING = 0.2
"""Share of the slow span's transfer time from which another tells about the NIC: four bytes tell nothing."""
EVERYWHERE = 0.6
"""Share of the paths over NICs from which the network as a whole is slow."""


@dataclass(frozen=True, slots=True, eq=False)
class SlowSpans:
    """Excess of each span (a group, or both directions of a pair) in one window; shape (spans,) each."""

    tier: Tier
    excess: FloatArray
    """Share of a step; 0 for those that are not slow."""
    out: BoolArray
    crosses: BoolArray
    """Whether it is in use and over NICs."""
    usual_s: FloatArray
    """Transfer time per step, before."""
    ratio: FloatArray
    """Transfer time over the usual one."""


def slow_spans(
    transfer_s: FloatArray, baseline: Baseline, layout: Layout, tiers: tuple[Tier, ...], explained: IntArray
) -> SlowSpans | None:
    """Slow spans in the shortest window that sees a material excess.

    explained: ranks whose computing explains their transfers: a late sender makes them look slow.
    """
    for tier in tiers:
        if len(transfer_s) >= tier.steps:
            found = _in_window(transfer_s[-tier.steps :], baseline, layout, tier, explained)
            if found is not None:
                return found
    return None


def _in_window(
    window: FloatArray, baseline: Baseline, layout: Layout, tier: Tier, explained: IntArray
) -> SlowSpans | None:
    found = standing(transfer_excess(window, baseline), baseline.transfer_noise, tier, baseline.steps, least=PATH_LEAST)
    ratio = np.median(window, axis=0) / np.maximum(baseline.transfer_s, 1e-9)
    used = baseline.transfer_s > 0
    flagged = np.zeros(layout.ranks, np.bool_)
    flagged[explained] = True
    usable = used & ~np.asarray(np.logical_or.reduceat(flagged[layout.members], layout.starts[:-1])[layout.span_path])
    out = found.out & (ratio >= LEAST_RATIO) & usable
    if not out.any():
        return None
    slow = SlowSpans(
        tier,
        np.where(out, found.excess, 0.0),
        out,
        layout.crosses[layout.span_path] & used,
        baseline.transfer_s,
        ratio,
    )
    by_nic = [slow.excess[_spans_of(nic, slow, layout)].sum() for nic in _nics_on(slow, layout)]
    return slow if float(max([slow.excess.max(), *by_nic])) >= tier.least_share else None


def _nics_on(slow: SlowSpans, layout: Layout) -> list[int]:
    """NICs of all ranks on slow spans that use NICs."""
    paths = layout.span_path[slow.out & slow.crosses]
    ranks = np.concatenate([layout.ranks_on(path) for path in paths.tolist()]) if len(paths) else np.zeros(0, np.int64)
    return [int(nic) for nic in np.unique(layout.nic[ranks])]


def _spans_of(nic: int, slow: SlowSpans, layout: Layout) -> IntArray:
    """Spans over one NIC that are in use."""
    on_nic = np.logical_or.reduceat(layout.nic[layout.members] == nic, layout.starts[:-1])
    spans = np.unique(layout.span[on_nic])
    return np.asarray(spans[slow.crosses[spans]])


@dataclass(frozen=True, slots=True)
class Named:
    """What a pattern of slow paths names."""

    part: Part
    ranks: tuple[int, ...]
    note: str
    cause: Cause | None = None
    probe: str = ""


def named(slow: SlowSpans, layout: Layout, at_s: float, since_s: float, *, points: bool) -> JobVerdict:
    """The one part that explains the slow paths.

    points: False knows no point pattern, only rows and columns: every excess is some NIC's.
    """
    total = float(slow.excess.sum())
    if slow.crosses.sum() > 4 and slow.out[slow.crosses].mean() >= EVERYWHERE:
        found = Named(Part.NOTHING, (), "most paths between nodes alike", Cause.NETWORK_SLOW)
    else:
        found = _in_a_row(slow, layout, points=points) or _at_a_point(slow, layout)
    shown = (
        f"{int(slow.out.sum())} paths transfer {total:.0%} of a step longer than before, over {slow.tier.steps} steps"
    )
    return JobVerdict(
        at_s,
        Syndrome.NONE if found.cause else Syndrome.COMMUNICATION_SLOW,
        found.part,
        found.ranks,
        since_s,
        min(0.99, total / (2 * slow.tier.least_share)),
        (shown, found.note),
        found.cause,
        found.probe,
    )


def _in_a_row(slow: SlowSpans, layout: Layout, *, points: bool) -> Named | None:
    """The NIC whose row or column of the pair matrix holds the excess, in at least two places."""
    total = float(slow.excess.sum())
    best, found = 0.0, None
    for nic in _nics_on(slow, layout):
        spans = _spans_of(nic, slow, layout)
        share = float(slow.excess[spans].sum()) / total
        if share >= EXPLAINED and (slow.out[spans].sum() > 1 or not points) and share > best:
            ranks = tuple(np.flatnonzero(layout.nic == nic).tolist())
            best, found = share, Named(Part.NIC, ranks, f"{share:.0%} of it over this NIC")
    return found


def _at_a_point(slow: SlowSpans, layout: Layout) -> Named:
    worst = int(slow.excess.argmax())
    if slow.excess[worst] < EXPLAINED * slow.excess.sum():
        return _abstention(np.flatnonzero(slow.out), layout, "no single NIC or link explains it")
    ranks = layout.ranks_on(int(layout.span_path[worst]))
    part = Part.LINK if len(ranks) == 2 else Part.GROUP
    if not slow.crosses[worst]:
        return Named(part, _rising(ranks), "inside one node")
    others = []  # each end's other spans that transfer enough to tell about its NIC
    for rank in ranks:
        beside = np.setdiff1d(_spans_of(int(layout.nic[rank]), slow, layout), [worst])
        others.append(beside[slow.usual_s[beside] >= TELLING * slow.usual_s[worst]])
    if any((slow.ratio[each] < 0).any() for each in others):
        return _abstention(
            np.array([worst]), layout, "a clock was stepped: until it is aligned, other paths cannot tell"
        )
    if len(ranks) == 2 and not all(map(len, others)):
        return _abstention(np.array([worst]), layout, "an end has no other path that would tell NIC from link")
    probe = "" if len(ranks) == 2 else "pair probes between neighbours of the ring"
    return Named(part, _rising(ranks), "a point: other paths of both ends are as before", probe=probe)


def _abstention(spans: IntArray, layout: Layout, note: str) -> Named:
    suspects = np.concatenate([layout.ranks_on(int(layout.span_path[span])) for span in spans])
    probe = "pair probes between each of these ranks and a healthy control"
    return Named(Part.NOTHING, _rising(suspects), note, probe=probe)


def _rising(ranks: IntArray) -> tuple[int, ...]:
    return tuple(np.unique(ranks).tolist())
