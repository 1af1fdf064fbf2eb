"""Excess: how much longer a rank computes, or a span transfers, than its own past and the whole job's pace explain."""

from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import Array, BoolArray, FloatArray, IntArray
from health.analysis.matching import StepSums
from health.records.layout import Layout
from tonnage.records import Kind


@dataclass(frozen=True, slots=True)
class Tier:
    """One window: short ones find strong faults soon, long ones weak faults without false alarms."""

    steps: int
    least_share: float
    """Least excess that counts, as a share of the step."""


TIERS = (Tier(5, 0.15), Tier(12, 0.07), Tier(28, 0.06))
"""Chosen on seeds 1-60 of benchmarks/health.py; the last one's share so that ranks whose speed drifts by 1.5 % either
way are not blamed: at 0.045, 9 were in 312,330 clean GPU-days (benchmarks/health.py, seeds 3001-3030)."""
PERSISTENT = 0.8
"""Share of a window's steps that must show at least half of the excess: a stall shows in one step only."""
_Z = 7.0
"""Standard errors of a window's median that noise must not reach: 1e-11 one-sided, for a million windows a day."""
_MEDIAN = 1.2533
"""Standard error of a median over that of a mean, for normal noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What one tier found; shape (columns,) each."""

    tier: Tier
    excess: FloatArray
    """Median excess within the window, as a share of the step."""
    out: BoolArray
    """Whether it stands out."""


def noise_of(excess: FloatArray) -> FloatArray:
    """Standard deviation of each column from its median absolute deviation, at least that of the median column."""
    spread = 1.4826 * np.median(np.abs(excess - np.median(excess, axis=0)), axis=0)
    return np.maximum(spread, np.median(spread))


def limits(noise: FloatArray, tier: Tier, baseline_steps: int, least: float = 1.0) -> FloatArray:
    """Shape (columns,): median excess from which a column stands out."""
    error = _MEDIAN * noise * np.sqrt(1 / tier.steps + 1 / max(baseline_steps, 1))
    return np.asarray(np.maximum(tier.least_share * least, _Z * error))


def standing(excess: FloatArray, noise: FloatArray, tier: Tier, baseline_steps: int, least: float = 1.0) -> Standing:
    """excess: shape (steps, columns), newest last, at least the tier's steps.

    noise: shape (columns,), standard deviation per step. baseline_steps: steps behind the expectation.
    least: factor of the tier's least share.
    """
    window = excess[-tier.steps :]
    middle = np.median(window, axis=0)
    limit = limits(noise, tier, baseline_steps, least)
    out = middle >= limit
    out[out] = (window[:, out] > limit[out] / 2).mean(axis=0) >= PERSISTENT
    return Standing(tier, middle, out)


BEHIND = 1.25
"""Computing time over that of its peers from which a rank's own past is no measure. Chosen: logs and the like take
less."""
FEW_PEERS = 4
"""Ranks of the same work below which they are no measure."""
PACE = 0.4
"""Quantile over ranks that is taken as the job's pace: up to 60 % of the ranks may be slow without moving it."""
FEW_SPANS = 5
"""Spans of one role below which they have no pace of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """What steps of this job looked like before."""

    steps: int
    length_s: float
    compute_s: FloatArray
    """Shape (ranks,), median computing time per step."""
    transfer_s: FloatArray
    """Shape (spans,), median transfer time per step; 0 for spans that are not used."""
    compute_noise: FloatArray
    """Shape (ranks,), standard deviation per step, as a share of the step."""
    transfer_noise: FloatArray
    classes: IntArray
    """Shape (spans,), spans of one class have one pace."""
    behind: BoolArray
    """Shape (ranks,): ranks that computed longer than their peers from the first; `compute_s` is what those take."""


def baseline_of(sums: StepSums, layout: Layout, first: int, last: int, *, peers: bool = True) -> Baseline | None:
    """Baseline from steps first..last; None while their length is unknown. peers: as for `baseline_from`."""
    length_s = sums.length_s(first, last)
    if length_s <= 0:
        return None
    return baseline_from(sums.compute_s(first, last), sums.transfer_s(first, last), length_s, layout, peers=peers)


def baseline_from(
    compute_s: FloatArray, transfer_s: FloatArray, length_s: float, layout: Layout, *, peers: bool = True
) -> Baseline:
    """Baseline from tables of shape (steps, ranks) and (steps, spans). peers: whether ranks are held to theirs."""
    quiet = Baseline(
        steps=len(compute_s),
        length_s=length_s,
        compute_s=np.median(compute_s, axis=0),
        transfer_s=np.median(transfer_s, axis=0),
        compute_noise=np.zeros(layout.ranks),
        transfer_noise=np.zeros(len(layout.span_path)),
        classes=layout.path_role[layout.span_path] * 2 + layout.crosses[layout.span_path],
        behind=np.zeros(layout.ranks, np.bool_),
    )
    excess = transfer_excess(transfer_s, quiet)
    noise = np.zeros(excess.shape[1])
    used = quiet.transfer_s > 0
    for number in np.unique(quiet.classes[used]):
        alike = used & (quiet.classes == number)
        noise[alike] = noise_of(excess[:, alike])
    peers_s = _of_peers(quiet.compute_s, layout)
    behind = (quiet.compute_s > BEHIND * peers_s) & peers
    return replace(
        quiet,
        compute_noise=noise_of(compute_excess(compute_s, quiet, np.ones(layout.ranks))),
        transfer_noise=noise,
        compute_s=np.where(behind, peers_s, quiet.compute_s),
        behind=behind,
    )


def _of_peers(compute_s: FloatArray, layout: Layout) -> FloatArray:
    """Shape (ranks,): what the peers of each rank take, up to 60 % of which may be slow; infinite where it has few."""
    made = np.full(layout.ranks, np.inf)
    for number in range(int(layout.peers.max(initial=-1)) + 1):
        alike = layout.peers == number
        if alike.sum() >= FEW_PEERS:
            made[alike] = np.quantile(compute_s[alike], PACE)
    return made


def compute_pace(compute_s: FloatArray, baseline: Baseline) -> FloatArray:
    """Shape (steps,): how slow the job computes in each step, 1 as before."""
    used = baseline.compute_s > 0
    if not used.any():
        return np.ones(len(compute_s))
    return np.asarray(np.quantile(compute_s[:, used] / baseline.compute_s[used], PACE, axis=1))


def compute_excess(compute_s: FloatArray, baseline: Baseline, speed_share: FloatArray) -> FloatArray:
    """Shape (steps, ranks), share of a step.

    speed_share: shape (ranks,), speed that our own limits leave a rank; what they explain is no excess.
    """
    pace = compute_pace(compute_s, baseline)
    expected_s = pace[:, None] * (baseline.compute_s / speed_share)
    return np.asarray((compute_s - expected_s) / baseline.length_s)


def transfer_excess(transfer_s: FloatArray, baseline: Baseline) -> FloatArray:
    """Shape (steps, spans), share of a step; spans that are not used have none."""
    expected_s = np.broadcast_to(baseline.transfer_s, transfer_s.shape).copy()
    for number in np.unique(baseline.classes):
        alike = (baseline.classes == number) & (baseline.transfer_s > 0)
        if alike.sum() >= FEW_SPANS:
            pace = np.quantile(transfer_s[:, alike] / baseline.transfer_s[alike], PACE, axis=1)
            expected_s[:, alike] *= pace[:, None]
    return np.where(baseline.transfer_s > 0, (transfer_s - expected_s) / baseline.length_s, 0.0)


IN_FLIGHT = 4
"""Operations in flight that are followed per rank, the oldest."""
_RECENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Operations in flight at the last heartbeats; shape (waits,) each."""

    rank: IntArray
    path: IntArray
    seq: IntArray
    op: IntArray
    size: IntArray
    """Size class."""
    age_s: FloatArray
    """Until now, if nothing changed since the heartbeat."""


class Pulse:
    """State of all heartbeats."""

    def __init__(self, layout: Layout) -> None:
        ranks = layout.ranks
        self._layout = layout
        self.seen_s = np.full(ranks, -np.inf)
        """Arrival of the last heartbeat, the analyser's clock."""
        self._began_s = np.inf
        """Arrival of the first records: a rank that was never heard is silent since then."""
        self.phase = np.zeros(ranks, np.int64)
        self.idle_s = np.zeros(ranks)
        """Time since the last exit, at the heartbeat."""
        self.ended = np.zeros(ranks, np.bool_)
        self.entered = np.zeros(len(layout.members), np.int64)
        """Sequence number of the last operation that each member of each path entered."""
        self.advanced_s = np.full(len(layout.members), -np.inf)
        """Arrival of the record by which each `entered` was learnt."""
        self._path = np.full((ranks, IN_FLIGHT), -1, np.int64)
        self._seq, self._op, self._size = (np.zeros((ranks, IN_FLIGHT), np.int64) for _ in range(3))
        self._age_s = np.zeros((ranks, IN_FLIGHT))
        self._gaps_s: list[float] = []
        self.lately_s = np.zeros(len(layout.sizes))
        """How long each path's transfers took of late."""

    def learn_gaps(self, gap_s: FloatArray) -> None:
        """Remembers how long the longest gaps of a batch were."""
        if len(gap_s):
            self._gaps_s.append(float(np.quantile(gap_s, 0.99)))
            del self._gaps_s[:-_RECENT]

    @property
    def typical_gap_s(self) -> float:
        """99th percentile of computing times between operations, of late."""
        return float(np.median(self._gaps_s)) if self._gaps_s else 0.0

    def progressed(self, slot: IntArray, seq: IntArray, now_s: float) -> None:
        """slot: places in the layout's `members`; the operation was entered there."""
        self.advanced_s[slot[seq > self.entered[slot]]] = now_s
        np.maximum.at(self.entered, slot, seq)

    def learn_transfers(self, path: IntArray, transfer_s: FloatArray) -> None:
        self.lately_s[path] = np.maximum(transfer_s, 0.8 * self.lately_s[path])

    def beat(self, rows: Array, rank: IntArray, path: IntArray, index: IntArray, seq: IntArray, now_s: float) -> None:
        """rows: BEAT records, each followed by its IN_FLIGHT records; path, index, seq: of the latter."""
        self._began_s = min(self._began_s, now_s)
        is_beat = rows["kind"] == Kind.BEAT
        beats = np.flatnonzero(is_beat)
        if not len(beats):
            return
        last = np.full(self._layout.ranks, -1, np.int64)
        last[rank[beats]] = beats  # the newest of several in one batch wins: they are in order
        fresh = last[last >= 0]
        here = rank[fresh]
        self.seen_s[here] = now_s
        self.phase[here], self.idle_s[here] = rows["phase"][fresh], rows["for_ns"][fresh] * 1e-9
        self._path[here] = -1
        own_beat = np.maximum(np.cumsum(is_beat) - 1, 0)
        place = np.arange(len(rows)) - beats[own_beat] - 1
        kept = ~is_beat & (place >= 0) & (place < IN_FLIGHT) & (path >= 0)
        kept &= last[rank] == beats[own_beat]
        where, column = rank[kept], place[kept]
        self._path[where, column], self._seq[where, column] = path[kept], seq[kept]
        self._op[where, column], self._size[where, column] = rows["op"][kept], rows["size"][kept]
        self._age_s[where, column] = rows["for_ns"][kept] * 1e-9
        self.progressed(self._layout.starts[path[kept]] + index[kept], seq[kept], now_s)

    def silent_s(self, now_s: float) -> FloatArray:
        """Time since each rank's last heartbeat arrived, or since the first records did."""
        return np.asarray(now_s - np.maximum(self.seen_s, self._began_s))

    def waiting(self, now_s: float) -> Waiting:
        rank, column = np.nonzero(self._path >= 0)
        age_s = self._age_s[rank, column] + np.minimum(now_s - self.seen_s[rank], 60.0)
        path, seq, op, size = (each[rank, column] for each in (self._path, self._seq, self._op, self._size))
        return Waiting(rank, path, seq, op, size, age_s)

    def in_operation(self) -> BoolArray:
        """Whether each rank was in an operation at its last heartbeat."""
        return np.asarray((self._path >= 0).any(axis=1))
