"""Proven bound on allocation: the GPUs that the best packing of a demand could allocate, with shadow prices.

A linear program over pod classes and node kinds, a relaxation of every packing, online or not, with moves or without.

Sets       c: pod classes, k: node kinds, s: fractional sizes, p: patterns (which sizes share one GPU)
Data       d_c: pods that arrived;  g_c: GPUs a pod requests;  n_c: its devices;  s_c: its size if it is fractional
           N_k: GPUs of the kind;  C_k: CPU of the kind;  a_sp: pods of size s in pattern p
Variables  x_ck ≥ 0: pods of class c on kind k (only where a node of k can host one);  y_pk ≥ 0: GPUs of k under p
Objective  max Σ_ck g_c x_ck
Subject to Σ_k x_ck ≤ d_c                                          demand;     dual α_c
           Σ_c cpu_c x_ck ≤ C_k                                     CPU;        dual λ_k
           Σ_{c whole} n_c x_ck + Σ_p y_pk ≤ N_k                    devices;    dual γ_k
           Σ_{c of size s} n_c x_ck ≤ Σ_p a_sp y_pk                 fractions;  dual π_sk

Patterns are generated as they are needed: the best one under the duals is an unbounded knapsack. The returned bound is
not the solver's objective but the value of a dual solution that arithmetic makes feasible. It therefore holds whatever
the solver's tolerances, and also when the generation stops early.

It differs from the configuration bound (patterns of whole nodes) in that CPU is summed over the nodes of a kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import WHOLE_GPU_MILLI
from placement.highs_program import Entries, Program
from placement.prices.classes import FleetKinds, PodClass, hosting_kinds


def single_size_patterns(sizes_milli: Sequence[int]) -> IntArray:
    """For each size, the GPU that holds as many of it as fit, filled up with smaller ones. Shape (sizes, sizes)."""
    patterns = np.zeros((len(sizes_milli), len(sizes_milli)), dtype=np.int64)
    for first, size in enumerate(sizes_milli):
        left = WHOLE_GPU_MILLI
        for number in sorted(range(len(sizes_milli)), key=lambda n: (n != first, -sizes_milli[n])):
            if number == first or sizes_milli[number] < size:
                patterns[first, number], left = divmod(left, sizes_milli[number])
    return patterns


def best_patterns(sizes_milli: Sequence[int], price: FloatArray) -> tuple[FloatArray, IntArray]:
    """Most valuable way to fill one GPU, for several price lists at once: an unbounded knapsack.

    price: shape (lists, sizes), what one pod of that size pays.
    Returns the best total, shape (lists,), and the counts that attain it, shape (lists, sizes).
    """
    lists, count = price.shape
    if not count:
        return np.zeros(lists), np.zeros((lists, 0), dtype=np.int64)
    unit = gcd(WHOLE_GPU_MILLI, *sizes_milli)
    size = np.array(sizes_milli, dtype=np.int64) // unit
    room = WHOLE_GPU_MILLI // unit
    # Rows below zero mean "does not fit"; best[room_left] starts at row `offset`.
    offset = int(size.max())
    best = np.full((offset + room + 1, lists), -np.inf)
    best[offset] = 0.0
    last = np.full((room + 1, lists), -1, dtype=np.int64)
    every_list = np.arange(lists)
    for left in range(1, room + 1):
        offers = best[offset + left - size] + price.T
        choice = offers.argmax(axis=0)
        offered = offers[choice, every_list]
        kept = best[offset + left - 1]
        better = offered > kept
        best[offset + left] = np.where(better, offered, kept)
        last[left] = np.where(better, choice, -1)
    counts = np.zeros((lists, count), dtype=np.int64)
    for row in range(lists):  # walks back through the choices
        left = room
        while left > 0:
            chosen = last[left, row]
            if chosen < 0:
                left -= 1
            else:
                counts[row, chosen] += 1
                left -= int(size[chosen])
    return best[offset + room], counts


CPU_UNIT_MILLI = 1000.0
"""Unit of CPU inside the program, one core, so that its coefficients lie within three orders of magnitude."""

ENOUGH = 1e-6
"""Relative distance between bound and attained objective at which the generation of patterns stops."""

MOST_ROUNDS = 60
"""Maximum rounds of pattern generation; openb needs 5 to 12."""


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """Upper bound on what a demand could be allocated, with the prices that prove it."""

    gpus: float
    """GPUs that no packing of the demand exceeds."""
    worth: FloatArray
    """Shape (classes,): worth, in GPUs, of the cheapest resources that can host one pod: β_c = min(g_c, min_k cost_ck).

    That is g_c - α_c with the smallest α that the other duals allow; 0 for pods without GPUs.
    """
    device_price: FloatArray
    """γ: GPUs per whole device, shape (kinds,)."""
    patterns: IntArray
    """Patterns in use, shape (patterns, sizes): a good start for the next solve with the same classes."""


def allocation_bound(
    classes: Sequence[PodClass], demand: FloatArray, kinds: FleetKinds, patterns: IntArray | None = None
) -> Bound:
    """Bound for a demand (pods per class), and the worth of each class under its duals.

    patterns: `Bound.patterns` of an earlier solve with the same classes, to start from.
    330 classes, 16 kinds: 0.3 s.
    """
    model = _Model(classes, demand, kinds)
    if not model.hosts.any():  # no class that requests GPUs fits any kind: nothing can be allocated
        none = np.zeros((0, len(model.sizes)), dtype=np.int64)
        return Bound(0.0, np.zeros(len(classes)), np.zeros(len(kinds)), none)
    program = model.program()
    fresh = model.new(single_size_patterns(model.sizes) if patterns is None else patterns)
    for _ in range(MOST_ROUNDS):
        if len(fresh):
            program.add_columns(np.zeros(len(kinds) * len(fresh)), model.columns(fresh))
        # The origin is always feasible and capacity bounds the program, so any other status is a solver failure.
        if not program.solve():
            raise RuntimeError("bounding the allocation: HiGHS found no optimum")
        attained = -program.objective
        bound, better = model.certified(np.maximum(-program.row_duals, 0.0))
        if bound.gpus - attained <= ENOUGH * max(attained, 1.0) or not len(fresh := model.new(better)):
            break
    return bound


class _Model:
    """Restricted program, which grows by patterns. Rows: demand, CPU, devices, fractions (by size within a kind)."""

    def __init__(self, classes: Sequence[PodClass], demand: FloatArray, kinds: FleetKinds) -> None:
        self.kinds = kinds
        self.demand = np.asarray(demand, dtype=np.float64)
        self.gpu_demand = np.array([c.gpu_demand for c in classes], dtype=np.float64)
        self.devices = np.array([c.gpus for c in classes], dtype=np.float64)
        self.cpu = np.array([c.cpu_milli for c in classes], dtype=np.float64) / CPU_UNIT_MILLI
        self.sizes = sorted({c.gpu_milli for c in classes if c.gpus and c.gpu_milli < WHOLE_GPU_MILLI})
        self.size = np.array(
            [self.sizes.index(c.gpu_milli) if c.gpus and c.gpu_milli < WHOLE_GPU_MILLI else -1 for c in classes],
            dtype=np.int64,
        )
        self.hosts = hosting_kinds(classes, kinds) & (self.devices > 0)[:, None]
        self.patterns: dict[tuple[int, ...], None] = {}
        self.first_cpu, self.first_device = len(classes), len(classes) + len(kinds)
        self.first_fraction = len(classes) + 2 * len(kinds)

    def program(self) -> Program:
        """Program without patterns."""
        c, k = np.nonzero(self.hosts)
        fraction_row = self.first_fraction + k * len(self.sizes) + np.maximum(self.size[c], 0)
        third_row = np.where(self.size[c] < 0, self.first_device + k, fraction_row)
        total_cpu = self.kinds.total_cpu_milli / CPU_UNIT_MILLI
        no_fractions = np.zeros(len(self.kinds) * len(self.sizes))
        row_upper = np.concatenate([self.demand, total_cpu, self.kinds.total_gpus, no_fractions])
        return Program(
            cost=-self.gpu_demand[c],
            upper=np.full(len(c), np.inf),
            row_lower=np.full(len(row_upper), -np.inf),
            row_upper=row_upper,
            entries=Entries(
                np.concatenate([c, self.first_cpu + k, third_row]),
                np.tile(np.arange(len(c)), 3),
                np.concatenate([np.ones(len(c)), self.cpu[c], self.devices[c]]),
            ),
        )

    def new(self, patterns: IntArray) -> IntArray:
        """Those of the patterns that are not offered yet, from now on offered to every kind."""
        new = [p for p in dict.fromkeys(map(tuple, patterns.tolist())) if p not in self.patterns and any(p)]
        self.patterns.update(dict.fromkeys(new))
        return np.array(new, dtype=np.int64).reshape(len(new), len(self.sizes))

    def columns(self, patterns: IntArray) -> Entries:
        """Coefficients of these patterns, for one kind after the other."""
        count, kinds = len(patterns), np.arange(len(self.kinds))
        p, s = np.nonzero(patterns)
        fraction_row = self.first_fraction + kinds[:, None] * len(self.sizes) + s
        return Entries(
            np.concatenate([np.repeat(self.first_device + kinds, count), fraction_row.reshape(-1)]),
            np.concatenate([np.arange(len(kinds) * count), (kinds[:, None] * count + p).reshape(-1)]),
            np.concatenate([np.ones(len(kinds) * count), np.tile(-patterns[p, s].astype(np.float64), len(kinds))]),
        )

    def certified(self, dual: FloatArray) -> tuple[Bound, IntArray]:
        """Feasible dual solution near the solver's, with its value and the patterns that would have lowered it.

        Given λ and π, the least feasible γ_k is the worth of the most valuable pattern. Whole pods then pay γ_k a
        device, or their α rises.
        """
        size_price = dual[self.first_fraction :].reshape(len(self.kinds), len(self.sizes))
        cpu_price = dual[self.first_cpu : self.first_device]
        dearest, counts = best_patterns(self.sizes, size_price)
        device_price = np.maximum(dearest, dual[self.first_device : self.first_fraction])
        per_device = np.where(
            (self.size < 0)[:, None], device_price, size_price.T[self.size] if self.sizes else device_price
        )
        cost = self.cpu[:, None] * cpu_price + self.devices[:, None] * per_device
        cheapest = np.where(self.hosts, cost, np.inf).min(axis=1)
        worth = np.minimum(self.gpu_demand, cheapest)
        alpha = self.gpu_demand - worth
        gpus = float(
            alpha @ self.demand
            + cpu_price @ self.kinds.total_cpu_milli / CPU_UNIT_MILLI
            + device_price @ self.kinds.total_gpus
        )
        pool = np.array(list(self.patterns), dtype=np.int64).reshape(len(self.patterns), len(self.sizes))
        return Bound(gpus, worth, device_price, pool), counts
