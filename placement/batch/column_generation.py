"""Third stage: column generation. Patterns of pods per node are generated as needed, until none would help.

The restricted program (`problem.py`, with the patterns found until then and without whole numbers) gives prices.
Pricing gives for each kind the most valuable pattern under them and a ceiling, and the ceilings give a bound
(`relaxation.py`).

Pricing is a bounded knapsack of several resources with a proof. For each kind k: max Σ_c π_c n_c subject to
Σ_c ask_cr n_c ≤ room_kr, n_c ≤ most_ck, n_c whole. The proven bound is the ceiling U_k of `relaxation.py`.

Sources: Gilmore and Gomory, Operations Research 9 (1961); Desaulniers et al., Column Generation, 2005, chapter 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.capacity import Free
from cluster.workloads import WHOLE_GPU_MILLI
from placement.batch.assignment_table import deal
from placement.batch.columns import Columns, Memory, Proof, recalled
from placement.batch.problem import Batch
from placement.batch.relaxation import Prices, Relaxed, ceilings, cut_of, proven_usd
from placement.highs_program import Entries, Program, TreeSearch, joined

MOST_NODES = 2_000
"""Nodes of the solver's search for one kind. Two dozen classes need one node nearly always; past the limit the
proven bound is still a bound, only a looser one."""

SAFETY = 1e-7
"""Relative increase of a solver's ceiling: its tolerances may make it too low by less than this."""


def priced(batch: Batch, pod_usd: FloatArray, most: IntArray, gap: float) -> tuple[IntArray, FloatArray]:
    """For each kind a pattern of the highest worth or nearly, shape (kinds, classes), and the ceiling, shape (kinds,).

    pod_usd: π, shape (classes,). most: maximum pods of a class in a pattern, shape (classes, kinds). gap: relative
    distance between pattern and ceiling at which the search for a kind stops. Twenty-four classes: 5 to 10 ms a kind.
    """
    kinds = len(batch.kinds)
    pattern, ceiling = np.zeros((kinds, len(pod_usd)), dtype=np.int64), np.zeros(kinds)
    for k in range(kinds):
        usd, room = float(batch.kind_usd[k]), batch.kind_room[k]
        found, ceiling[k] = most_valuable(pod_usd, batch.ask, room, most[:, k], usd, gap)
        pattern[k] = dealt_pattern(batch, found, k)
    return pattern, ceiling


def most_valuable(
    pod_usd: FloatArray, ask: FloatArray, room: FloatArray, most: IntArray, usd: float, gap: float
) -> tuple[IntArray, float]:
    """Pattern of nearly the highest worth on a node of one kind, and its ceiling. A pattern worth less than the price
    of the node is useless, and then not sought.

    room: shape (resources,); most: shape (classes,). Returns shape (classes,).
    """
    pattern, worth = np.zeros(len(pod_usd), dtype=np.int64), np.flatnonzero((most > 0) & (pod_usd > 0))
    if not len(worth):
        return pattern, 0.0
    pod, resource = np.nonzero(ask[worth])

    def knapsack(whole: TreeSearch | None) -> Program:
        return Program(
            cost=-pod_usd[worth],
            upper=most[worth].astype(np.float64),
            row_lower=np.full(ask.shape[1], -np.inf),
            row_upper=room,
            entries=Entries(resource, pod, ask[worth][pod, resource]),
            whole=whole,
        )

    # If pods could be cut, they are often already worth less than the node costs.
    program = knapsack(None)
    duals = np.maximum(-program.row_duals, 0.0) if program.solve() else np.zeros(ask.shape[1])
    ceiling = float(ceilings(pod_usd[worth], ask[worth], room[None], most[worth][:, None], duals[None])[0])
    if ceiling <= usd:
        return pattern, ceiling
    program = knapsack(TreeSearch(MOST_NODES, gap))
    if program.solve():
        pattern[worth] = np.round(program.values).astype(np.int64)
    if np.isfinite(program.proven):
        ceiling = min(ceiling, -program.proven * (1 + SAFETY) + SAFETY)
    return pattern, ceiling


def dealt_pattern(batch: Batch, pattern: IntArray, k: int) -> IntArray:
    """The pods of a pattern that an empty node of the kind runs: fractions that fit in sum may not fit by device."""
    key, node, dealt = batch.kinds[k], np.zeros(1, dtype=np.int64), np.zeros_like(pattern)
    devices = np.full((1, key.gpus), WHOLE_GPU_MILLI, dtype=np.int64)
    free = Free(node + key.cpu_milli, node + key.memory_bytes, devices)
    for c in batch.order[pattern[batch.order] > 0].tolist():
        # Of other resources, which the program does not count either, nothing is known.
        shape = replace(batch.shapes[c], others=())
        dealt[c] = len(deal(free, shape, node, np.minimum(pattern[c], free.copies(shape))).node)
    return dealt


SMOOTHING = 0.5
"""Weight of the best known prices in the prices of a round: the program's own vary strongly. Chosen: 0.3 to 0.7 need
about as many rounds."""


LOOSEST = 5e-3
"""Distance from the proof at which pricing stops early in the search; later it is a tenth of the remaining distance."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits on the work of a search, in counts: the same work on every machine."""

    rounds: int = 50
    """Maximum rounds of pricing."""
    enough: float = 2.5e-3
    """Distance between the program and the bound at which it stops, as a fraction of the program's price of nodes.
    Chosen: rounding costs twice as much."""
    last_nodes: int = 3
    """Number of the dive's last nodes that are also tried without: their pods may fit beside the others."""
    tries: int = 20
    """Nodes that are emptied on trial at the end, to see whether their pods fit cheaper elsewhere."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """Last restricted program, and the bound proven on the way."""

    columns: Columns
    nodes: FloatArray
    """λ, fractions included. Shape (columns,)."""
    in_group: FloatArray
    """z, shape (classes, groups)."""
    left_out: FloatArray
    """s, shape (classes,)."""
    usd: float
    """Optimum of the program."""
    bound_usd: float
    """Lower bound on the price per hour of every plan, in dollars."""
    prices: Prices
    proofs: tuple[Proof, ...]
    """Proofs, the best first."""
    rounds: int


CHECKPOINTS = (1, 3, 8, 20, 50)
"""Rounds after which the search shows what it has. A search with more rounds passes the same checkpoints, so the best
of their plans never gets worse with more time."""


def rounds_at_most(most: float) -> int:
    """Last checkpoint within that many rounds; at least one round."""
    return max((rounds for rounds in CHECKPOINTS if rounds <= most), default=1)


def search(
    batch: Batch,
    start: Columns,
    relaxation: Relaxed,
    memory: Memory,
    effort: Effort,
) -> Iterator[SearchResult]:
    """Generates columns until the program is within `effort.enough` of the bound, or the work is used up.

    Returns its state at each checkpoint, and at the end. start: patterns to begin with. The memory's proofs count from
    the beginning.
    """
    columns = recalled(memory, batch).plus(start.pattern, start.kind)
    master = Master(batch, columns)
    nodes, in_group, left_out, usd, prices = master.solve()
    bound, best, proofs = known_bound(batch, relaxation, memory.proofs)
    most = most_in_patterns(batch)
    rounds, shown = 0, -1

    def state() -> SearchResult:
        # Read when it is called, so the variables of the search are its present ones.
        return SearchResult(columns, nodes, in_group, left_out, usd, min(bound, usd), prices, proofs, rounds)

    def is_near() -> bool:
        return bool(usd - bound <= effort.enough * (usd - left_out @ batch.left_out_usd))

    while rounds < effort.rounds and not is_near():
        if rounds in CHECKPOINTS and rounds > shown:
            shown = rounds
            yield state()
        tried = prices.pod_usd if best is None else SMOOTHING * best + (1 - SMOOTHING) * prices.pod_usd
        pattern, ceiling = priced(batch, tried, most, min(LOOSEST, 0.1 * (usd - bound) / usd))
        rounds += 1
        in_groups = ceilings(tried, batch.ask, batch.group_room, batch.group_copies, prices.group_resource_usd)
        proven = proven_usd(batch, tried, ceiling, in_groups)
        if proven > bound or not proofs:
            proofs = (Proof(batch.shapes, batch.kinds, tried, ceiling, most), *proofs)
        if proven > bound:
            bound, best = proven, tried
        grown = columns.plus(pattern, np.arange(len(batch.kinds)))
        if len(grown) == len(columns):
            if best is None or tried is prices.pod_usd:
                break  # The program's own prices give nothing new: this is its optimum over all patterns.
            best = None
            continue
        master.add(Columns(grown.pattern[len(columns) :], grown.kind[len(columns) :]))
        columns = grown
        nodes, in_group, left_out, usd, prices = master.solve()
    yield state()


def most_in_patterns(batch: Batch) -> IntArray:
    """Maximum pods of a class in a pattern: those that fit, limited by those pending. Shape (classes, kinds).

    The number pending is rounded up to a power of two, so that ceilings hold while it changes a little.
    """
    about = 2 ** np.ceil(np.log2(np.maximum(batch.pods, 1))).astype(np.int64)
    most: IntArray = np.minimum(batch.kind_copies, about[:, None])
    return most


def known_bound(
    batch: Batch, relaxation: Relaxed, proofs: Sequence[Proof]
) -> tuple[float, FloatArray | None, tuple[Proof, ...]]:
    """Best bound without any search, its prices, and the proofs, the best first.

    It comes from the relaxation, or from proofs for this problem or a similar one; None where the relaxation's own is
    best.
    """
    bound, best = relaxation.bound_usd, None
    proven = []
    for proof in proofs:
        cut = cut_of(batch, relaxation, proof)
        proven.append(proven_usd(batch, cut.pod_usd, cut.kind_ceiling, cut.group_ceiling))
        if proven[-1] > bound:
            bound, best = proven[-1], cut.pod_usd
    order = sorted(range(len(proven)), key=lambda number: (-proven[number], number))
    return bound, best, tuple(proofs[number] for number in order)


class Master:
    """Restricted program in the solver. Rows: demand, nodes of each kind, capacity of each group."""

    def __init__(self, batch: Batch, columns: Columns) -> None:
        self.batch = batch
        classes, resources = batch.ask.shape
        kinds, groups = len(batch.kinds), len(batch.group_room)
        self.classes, self.kinds = classes, kinds
        self.cg, self.g = np.nonzero(batch.group_copies)
        in_use = len(self.cg)
        self.first_pattern = classes + in_use
        group_row = classes + kinds + np.arange(groups * resources).reshape(groups, resources)
        self.group_row = group_row
        z = classes + np.arange(in_use)
        self.program = Program(
            cost=np.concatenate([batch.left_out_usd, np.zeros(in_use)]),
            upper=np.concatenate([np.full(classes, np.inf), batch.group_copies[self.cg, self.g].astype(np.float64)]),
            row_lower=np.concatenate([batch.pods, np.full(kinds + groups * resources, -np.inf)]).astype(np.float64),
            row_upper=np.concatenate([np.full(classes, np.inf), batch.kind_nodes, batch.group_room.reshape(-1)]),
            entries=joined(
                Entries(np.arange(classes), np.arange(classes), np.ones(classes)),
                Entries(self.cg, z, np.ones(in_use)),
                Entries(group_row[self.g].reshape(-1), np.repeat(z, resources), batch.ask[self.cg].reshape(-1)),
            ),
        )
        self.add(columns)

    def add(self, columns: Columns) -> None:
        """Adds these patterns."""
        if len(columns):
            self.program.add_columns(self.batch.kind_usd[columns.kind], pattern_entries(columns, self.classes))

    def solve(self) -> tuple[FloatArray, FloatArray, FloatArray, float, Prices]:
        """λ, z, s, the optimum and its prices."""
        if not self.program.solve():
            raise RuntimeError("planning a batch: HiGHS found no optimum of the restricted program")
        value, dual = self.program.values, self.program.row_duals
        in_group = np.zeros(self.batch.group_copies.shape)
        in_group[self.cg, self.g] = value[self.classes : self.first_pattern]
        prices = Prices(
            pod_usd=np.clip(dual[: self.classes], 0.0, self.batch.left_out_usd),
            kind_resource_usd=np.zeros((self.kinds, self.batch.ask.shape[1])),
            group_resource_usd=np.maximum(-dual[self.group_row], 0.0),
        )
        return value[self.first_pattern :], in_group, value[: self.classes], self.program.objective, prices


def pattern_entries(columns: Columns, classes: int) -> Entries:
    """Coefficients of patterns: pods of each class, and one node of the kind."""
    column, c = np.nonzero(columns.pattern)
    return joined(
        Entries(c, column, columns.pattern[column, c].astype(np.float64)),
        Entries(classes + columns.kind, np.arange(len(columns)), np.ones(len(columns))),
    )
