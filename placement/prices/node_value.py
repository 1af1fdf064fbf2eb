"""Worth of the free resources of one node to the pods that are expected: those it hosts, and fragments they cannot use.

V(node) is the best packing of an unlimited supply of pods, each paying its worth, into what is free on the node:

u[r][c]   residual r of one GPU with c CPU: unbounded knapsack over the classes that request a fraction of one GPU
F[k][c]   k idle GPUs: the better of sharing each (max-plus convolution with u) and whole-GPU classes
V[c]      F[idle GPUs] convolved with u[r] of every partly used GPU; the node's value is V at its free CPU

CPU is counted in steps: free CPU is rounded down and a pod's CPU up, so a value never includes what does not fit.
Residuals are rounded down to the nearest sum of class sizes, which loses nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.workloads import WHOLE_GPU_MILLI
from placement.prices.classes import ClassShares, FleetKinds, allowed_types

CPU_STEPS = 320
"""Steps of CPU on the fleet's largest node, 0.4 cores each on openb. Finer steps value CPU no better there and cost
time in proportion."""

MOST_VECTORS = 12_000
"""Values in one generation of the memo: 12,000 vectors of up to 320 steps in single precision are 15 MB."""

_NEVER = -1e9
"""Finite substitute for minus infinity: no packing is worth that little."""


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Value as a function of CPU, stored as its jumps: only they matter in a max-plus convolution."""

    at: IntArray
    """Steps of CPU at which the value rises, from 0."""
    value: FloatArray


class NodeValues:
    """Cache of V of node states. One per price book, within which prices never change."""

    def __init__(self, shares: ClassShares, worth: FloatArray, kinds: FleetKinds) -> None:
        self._step_milli = cpu_step_milli(kinds)
        # Length of the tables of each GPU type: one entry per CPU step of its largest node, and one for none.
        most = np.zeros(len(kinds.gpu_type_names), dtype=np.int64)
        np.maximum.at(most, kinds.gpu_type, kinds.cpu_milli)
        steps = most // self._step_milli + 1
        self._level_of = _levels(shares)
        shared = _shared_gpu_values(shares, worth, kinds, self._level_of, int(steps.max(initial=1)))
        self._jumps = [[_jumps(row[:n]) for row in of_type] for of_type, n in zip(shared, steps.tolist(), strict=True)]
        self._idle = _idle_gpu_values(shares, worth, kinds, self._jumps, steps)
        self._memo: dict[tuple[int, ...], FloatArray] = {}
        self._older: dict[tuple[int, ...], FloatArray] = {}

    def values(self, gpu_type: IntArray, cpu_milli: IntArray, gpu_milli: IntArray) -> FloatArray:
        """V of several states. gpu_type, cpu_milli: shape (states,); gpu_milli: shape (states, devices).

        A negative GPU type (none, or unknown) has value 0: no pod that requests a GPU is hosted there.
        """
        idle = (gpu_milli >= WHOLE_GPU_MILLI).sum(axis=1)
        partly = np.where(gpu_milli >= WHOLE_GPU_MILLI, 0, np.maximum(gpu_milli, 0))
        level = np.sort(self._level_of[partly], axis=1)
        step = np.maximum(cpu_milli, 0) // self._step_milli
        found = np.zeros(len(gpu_type))
        for row, (kind, whole) in enumerate(zip(gpu_type.tolist(), idle.tolist(), strict=True)):
            if kind >= 0:
                vector = self._vector((kind, whole, *level[row][level[row] > 0].tolist()))
                found[row] = vector[min(int(step[row]), len(vector) - 1)]
        return found

    def _vector(self, key: tuple[int, ...]) -> FloatArray:
        """V over all CPU steps of (type, idle GPUs, *levels of the partly used ones, ascending)."""
        vector = self._memo.get(key)
        if vector is not None:
            return vector
        vector = self._older.get(key)
        if vector is None:
            kind, idle = key[:2]
            if len(key) > 2:
                vector = _convolved(self._vector(key[:-1]), self._jumps[kind][key[-1]])
            else:
                table = self._idle[kind]
                vector = table[min(idle, len(table) - 1)]
        # Two generations: recently used entries survive, the rest is dropped, and no scan is needed.
        if len(self._memo) >= MOST_VECTORS:
            self._older, self._memo = self._memo, {}
        self._memo[key] = vector
        return vector


def cpu_step_milli(kinds: FleetKinds) -> int:
    """Step of CPU on a fleet."""
    return -(-kinds.widest_cpu_milli // CPU_STEPS)


def _levels(shares: ClassShares) -> IntArray:
    """Number of the greatest sum of class sizes that fits each residual, shape (1001,); 0 where none fits.

    Two residuals with the same number host the same pods.
    """
    reachable: BoolArray = np.zeros(WHOLE_GPU_MILLI + 1, dtype=np.bool_)
    reachable[0] = True
    sizes = sorted({c.gpu_milli for c in shares.classes if c.gpus and 0 < c.gpu_milli <= WHOLE_GPU_MILLI})
    for total in range(1, WHOLE_GPU_MILLI + 1):
        reachable[total] = any(total >= size and reachable[total - size] for size in sizes)
    return np.cumsum(reachable) - 1


def _cpu_steps(cpu_milli: int, kinds: FleetKinds) -> int:
    return -(-cpu_milli // cpu_step_milli(kinds))


def _shared_gpu_values(
    shares: ClassShares, worth: FloatArray, kinds: FleetKinds, level_of: IntArray, steps: int
) -> FloatArray:
    """u: shape (GPU types, levels, CPU steps). A class of n fractions counts as n pods of one fraction each."""
    allowed = allowed_types(shares.classes, kinds.gpu_type_names)
    residual = np.searchsorted(level_of, np.arange(level_of[-1] + 1))
    table = np.zeros((len(kinds.gpu_type_names), len(residual), steps))
    offers = [
        (
            c.gpu_milli,
            _cpu_steps(-(-c.cpu_milli // c.gpus), kinds),
            np.where(allowed[row], worth[row] / c.gpus, _NEVER)[:, None],
        )
        for row, c in enumerate(shares.classes)
        if c.gpus and 0 < c.gpu_milli < WHOLE_GPU_MILLI and worth[row] > 0
    ]
    for level in range(1, len(residual)):
        best = table[:, level]
        best[:] = table[:, level - 1]
        for size, cpu, pays in offers:
            left = int(residual[level]) - size
            if left >= 0 and cpu < steps:
                rest = table[:, level_of[left], : steps - cpu]
                np.maximum(best[:, cpu:], rest + pays, out=best[:, cpu:])
    return table


def _idle_gpu_values(
    shares: ClassShares, worth: FloatArray, kinds: FleetKinds, jumps: Sequence[Sequence[_Steps]], steps: IntArray
) -> list[list[FloatArray]]:
    """F: for each GPU type and number of idle GPUs the value over CPU steps."""
    allowed = allowed_types(shares.classes, kinds.gpu_type_names)
    tables = []
    for kind, length in enumerate(steps.tolist()):
        widest = int(kinds.gpus[kinds.gpu_type == kind].max(initial=0))
        whole = [
            (c.gpus, _cpu_steps(c.cpu_milli, kinds), worth[row])
            for row, c in enumerate(shares.classes)
            if c.gpu_milli == WHOLE_GPU_MILLI and 0 < c.gpus <= widest and allowed[row, kind] and worth[row] > 0
        ]
        table = [np.zeros(length)]
        for idle in range(1, widest + 1):
            best = _convolved(table[idle - 1], jumps[kind][-1])
            for gpus, cpu, pays in whole:
                if gpus <= idle and cpu < length:
                    np.maximum(best[cpu:], table[idle - gpus][: length - cpu] + pays, out=best[cpu:])
            table.append(best)
        tables.append(table)
    return tables


def _jumps(values: FloatArray) -> _Steps:
    """Jumps of an increasing step function. Unused CPU is worth nothing, so values never fall."""
    at = np.flatnonzero(np.diff(values, prepend=-1.0) > 1e-12)
    return _Steps(at, values[at])


def _convolved(values: FloatArray, other: _Steps) -> FloatArray:
    """Max-plus convolution: the best of splitting the CPU between `values` and `other`."""
    length = len(values)
    padded = np.concatenate([np.full(length, _NEVER), values])
    # Row `length - j` of the windows is `values` shifted by j steps.
    windows = np.lib.stride_tricks.sliding_window_view(padded, length)
    best: FloatArray = (windows[length - other.at] + other.value[:, None]).max(axis=0)
    return best


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """Value of free resources to the expected classes m: GPUs that they could use (H), fragments that they cannot (F).

    p_m: fraction of the pods; q_m: fraction of the requested GPUs; b: between 0 and 1.
    F = Σ ((1 - b) p_m + b q_m) · idle GPU that m cannot use there (all of it where m does not fit, or requests no GPU;
        else the remainders that are smaller than its demand per GPU). Source: FGD, USENIX ATC'23, definition of the
        expected fragment, which is that of b = 0. With b = 1 a class counts by its GPUs: a refused pod of eight costs
        eight.
    H = Σ p_m · GPUs that pods of class m alone could still get there.

    Classes are columns for array arithmetic; those that differ only in their allowed types share one.
    """

    share: FloatArray
    """Shape (GPU types + 1, columns): fraction of the pods that are of this column and may use this type, for H.

    The last row is zero: type -1, no GPU.
    """
    fragment_share: FloatArray
    """Shape (GPU types + 1, columns): the weights of F, likewise."""
    cpu_milli: IntArray
    """Shape (columns,)."""
    ask: IntArray
    """Shape (columns,): index into `gpus` and `gpu_milli`."""
    gpus: IntArray
    """Shape (asks,): the distinct GPU requests."""
    gpu_milli: IntArray
    """Shape (asks,)."""

    def fragment_and_hostable(
        self, gpu_type: IntArray, cpu_milli: IntArray, gpu_milli: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """F and H of several node states, in GPUs. gpu_milli: shape (states, devices); the others (states,)."""
        free = np.maximum(gpu_milli, 0)
        idle = free.sum(axis=1)
        size = self.gpu_milli[:, None, None]
        # Shape (asks, states) each: devices that suffice, GPU that is too small for the request, pods that the GPUs
        # host.
        suffices = free >= size
        enough = suffices.sum(axis=2)
        remainder = idle - np.where(suffices, free, 0).sum(axis=2)
        copies = (free // size).sum(axis=2) // self.gpus[:, None]
        cpu = np.maximum(cpu_milli, 0)
        fits = ((enough >= self.gpus[:, None])[self.ask] & (self.cpu_milli[:, None] <= cpu)).astype(np.float64)
        share, weight = self.share[gpu_type].T, self.fragment_share[gpu_type].T
        usable = (fits * weight * (idle - remainder)[self.ask]).sum(axis=0)
        by_cpu = cpu // np.maximum(self.cpu_milli, 1)[:, None]
        pods = np.minimum(by_cpu, copies[self.ask])
        size_gpus = (self.gpus * self.gpu_milli)[self.ask] / WHOLE_GPU_MILLI
        hostable = (fits * share * pods * size_gpus[:, None]).sum(axis=0)
        return (idle - usable) / WHOLE_GPU_MILLI, hostable


def expectation_of(shares: ClassShares, gpu_type_names: tuple[str, ...], by_gpus: float = 0.0) -> Expectation:
    """Columns for a mix. by_gpus: b above.

    Classes without GPUs have none: to them all idle GPU is a fragment, and nothing is hostable.
    """
    rows = [row for row, c in enumerate(shares.classes) if c.gpus]
    key = np.array(
        [(shares.classes[r].cpu_milli, shares.classes[r].gpus, shares.classes[r].gpu_milli) for r in rows],
        dtype=np.int64,
    ).reshape(-1, 3)
    columns, column_of = np.unique(key, axis=0, return_inverse=True)
    asks, ask = np.unique(columns[:, 1:], axis=0, return_inverse=True)
    of_gpus = shares.share * shares.gpu_demand / max(shares.mean_gpu_demand, 1e-300)
    weights = (1 - by_gpus) * shares.share + by_gpus * of_gpus
    share, fragment_share = np.zeros((2, len(gpu_type_names) + 1, len(columns)))
    allowed = allowed_types([shares.classes[row] for row in rows], gpu_type_names)
    for row, column, types in zip(rows, column_of.reshape(-1).tolist(), allowed, strict=True):
        share[:-1][types, column] += shares.share[row]
        fragment_share[:-1][types, column] += weights[row]
    return Expectation(share, fragment_share, columns[:, 0], ask.reshape(-1), asks[:, 0], asks[:, 1])
