"""Packing where what waits may have others moved: openb until as much has arrived as the fleet has, then a plan.

    python -m tests.rigs.packing_moves [SEEDS [LISTS]]

Pods arrive one by one, as published, and those that fit nowhere wait. Then one plan of the product places them, in
which others are moved as the operator moves them (`placement/packing/room.py`), at most 2 % of the pods. Beside it,
what no number of moves exceeds as long as nobody who runs is given up: the linear program of
`placement/prices/allocation_bound.py` in which all that run stay, somewhere. And what moves of any pods reach, parts of
devices too, of which one or two make room for each other: the product moves whole devices alone. Simulated.
"""

import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.cases import numbers
from cluster.actions import HoldSeats, Move, Start
from cluster.arrays import FloatArray, IntArray, Names
from cluster.snapshot import PENDING, PodTable, Snapshot
from placement.engine.packer import Packer
from placement.highs_program import Entries, Program
from placement.move_price import MovePrice
from placement.packing.draft import NEVER, PackingDraft
from placement.packing.planner import pack
from placement.packing.preemption import clearings
from placement.packing.units import pending_units
from placement.prices.allocation_bound import _Model, single_size_patterns
from placement.prices.classes import class_of, kinds_of
from simulator.openb.trace_reader import read_trace
from simulator.packing.policy_comparison import bound_pct
from simulator.packing.replay import gpu_milli_of, published_stream
from tests.rigs.used_fleet import packer_of

MOST_SHARE, ROUNDS, MOST_NODES = 0.02, 60, 4
OPENB = Path(os.environ.get("TONNAGE_DATA", "")) / "openb"
LISTS = "default,gpuspec33,multigpu20,gpushare100"


def arrived(trace: Snapshot, seed: int) -> tuple[Snapshot, Packer]:
    """The fleet once as many GPUs were asked for as it has: who runs, and who waits, in the order of arrival."""
    packer = packer_of(trace, trace, "tonnage", seed)
    _, gpu_milli = gpu_milli_of(trace.pods)
    left = 1000 * int(trace.nodes.gpus.sum())
    held = list[tuple[int, int, int]]()
    for index in published_stream(trace, seed).tolist():
        if (left := left - int(gpu_milli[index])) < 0:
            break
        shape = trace.pods.shapes[index]
        packer.policy.arrived(shape)
        packer.policy.upkeep(packer.ledger)
        choice = packer.choose(shape)
        if choice is not None:
            packer.place(shape, choice)
        held.append((index, PENDING, 0) if choice is None else (index, choice.node, choice.devices))
    shape, node, devices = np.array(held, dtype=np.int64).T
    names = Names(f"openb/{number:05d}" for number in range(len(held)))
    ones = np.ones(len(held), dtype=np.bool_)
    pods = PodTable.waiting(names, shape, trace.pods.shapes, node=node, devices=devices, movable=ones)
    return replace(trace, pods=pods), packer


def allocated_pct(seen: Snapshot) -> float:
    _, total = gpu_milli_of(seen.pods)
    return 0.1 * float(total[seen.pods.shape][seen.pods.node != PENDING].sum()) / float(seen.nodes.gpus.sum())


def moved(seen: Snapshot, packer: Packer) -> tuple[Snapshot, int]:
    """The fleet after one plan with moves, and how many it moved."""
    plan = pack(seen, packer, moves=MovePrice(most_share=MOST_SHARE))
    moves = {each.pod: each.node for each in plan.actions if isinstance(each, Move)}
    held = {seat.pod: seat.node for each in plan.actions if isinstance(each, HoldSeats) for seat in each.held.seats}
    starts = {each.pod: each.node for each in plan.actions if isinstance(each, Start)}
    node = seen.pods.node.copy()
    for pod, to in {**starts, **held, **moves}.items():
        row, there = seen.pods.names.row(pod), seen.nodes.names.row(to)
        if row is not None and there is not None:
            node[row] = there
    return replace(seen, pods=replace(seen.pods, node=node)), len(moves)


class Chains:
    """A draft in which any pods move for those that wait, most devices first, and others for these."""

    def __init__(self, seen: Snapshot, packer: Packer) -> None:
        self._seen, self._draft, self._moved = seen, PackingDraft(seen, packer), set[int]()

    def allocated_pct(self, longest: int) -> tuple[float, int]:
        """What is allocated once at most 2 % of the pods moved, and how many did. longest: pods of which one makes room
        for the next.
        """
        draft, in_vain, began = self._draft, set[int](), self._draft.mark
        draft.resistance, self._moved = np.where(self._seen.pods.node != PENDING, 0, NEVER), set()
        most = MOST_SHARE * float((self._seen.pods.node != PENDING).sum())
        for unit in sorted(pending_units(draft), key=lambda unit: -draft.shape(unit.rows[0]).total_gpu_milli):
            row, mark, before = unit.rows[0], draft.mark, self._moved.copy()
            if not draft.shape(row).gpus or draft.shape_number(row) in in_vain:
                continue
            if not self._place(row, longest) or len(self._moved) > most:
                draft.roll_back(mark)
                self._moved = before
                in_vain.add(draft.shape_number(row))
        found = allocated_pct(replace(self._seen, pods=replace(self._seen.pods, node=draft.node.copy())))
        draft.roll_back(began)
        return found, len(self._moved)

    def _resist(self, row: int, to: int) -> None:
        self._draft.resistance[row], self._draft._reclaimable = to, None
        self._draft.victims.clear()

    def _place(self, row: int, longest: int) -> bool:
        draft, own = self._draft, int(self._draft.resistance[row])
        if draft.seat(row):
            return True
        for each in clearings(draft, row, NEVER - 1, None)[:MOST_NODES] if longest else ():
            mark, before = draft.mark, self._moved.copy()
            for victim in each.victims:
                draft.unseat(victim)
            self._resist(row, NEVER)  # nobody of the chain takes its place again
            victims = sorted(each.victims, key=lambda other: -draft.shape(other).total_gpu_milli)
            if draft.seat(row, each.node) and all(self._place(other, longest - 1) for other in victims):
                self._moved.update(victims)
                return True
            self._resist(row, own)
            draft.roll_back(mark)
            self._moved = before
        return False


class _Kept(_Model):
    """The program of the bound, in which as many of each class are placed as run."""

    def at_least(self, running: FloatArray, patterns: IntArray) -> float:
        """GPUs that it allocates."""
        c, k = np.nonzero(self.hosts)
        fraction = self.first_fraction + k * len(self.sizes) + np.maximum(self.size[c], 0)
        third = np.where(self.size[c] < 0, self.first_device + k, fraction)
        none = np.zeros(len(self.kinds) * len(self.sizes))
        most = np.concatenate([self.demand, self.kinds.total_cpu_milli / 1000, self.kinds.total_gpus, none])
        least = np.full(len(most), -np.inf)
        least[: len(running)] = np.where(self.hosts.any(axis=1), running, 0)
        rows = np.concatenate([c, self.first_cpu + k, third])
        values = np.concatenate([np.ones(len(c)), self.cpu[c], self.devices[c]])
        entries = Entries(rows, np.tile(np.arange(len(c)), 3), values)
        program = Program(-self.gpu_demand[c], np.full(len(c), np.inf), least, most, entries)
        fresh = self.new(patterns)
        for _ in range(ROUNDS):
            if not len(fresh):
                break
            program.add_columns(np.zeros(len(self.kinds) * len(fresh)), self.columns(fresh))
            assert program.solve(), "those that run fit where they run"
            fresh = self.new(self.certified(np.maximum(-program.row_duals, 0.0))[1])
        return -program.objective


def kept_bound_pct(seen: Snapshot) -> float:
    """What no moves of pods that run exceed."""
    classes = [class_of(seen.pods.shapes[number]) for number in seen.pods.shape]
    runs = seen.pods.node != PENDING
    known = sorted(set(classes))
    asked, held = Counter(classes), Counter(each for each, on in zip(classes, runs, strict=True) if on)
    kinds = kinds_of(seen.nodes, seen.gpu_type_names)
    model = _Kept(known, np.array([asked[each] for each in known], dtype=np.float64), kinds)
    on = dict[tuple[int, int], Counter[int]]()
    for row in np.flatnonzero(runs).tolist():
        if classes[row].gpus == 1 and classes[row].gpu_milli < 1000:
            key = int(seen.pods.node[row]), int(seen.pods.devices[row])
            on.setdefault(key, Counter())[classes[row].gpu_milli] += 1
    now = [[own[size] for size in model.sizes] for own in on.values()]
    patterns = np.concatenate([single_size_patterns(model.sizes), np.array(now, dtype=np.int64)])
    running = np.array([held[each] for each in known], dtype=np.float64)
    return 100 * model.at_least(running, patterns) / kinds.capacity_gpus


def main() -> None:
    seeds, lists = (sys.argv[1:2] or ["42-44"])[0], (sys.argv[2:3] or [LISTS])[0].split(",")
    for name in lists:
        trace = read_trace(OPENB / "openb_node_list_gpu_node.csv", OPENB / f"openb_pod_list_{name}.csv")
        for seed in numbers(seeds):
            seen, packer = arrived(trace, seed)
            most = kept_bound_pct(seen)
            chains = Chains(seen, packer)
            for longest in (1, 2):
                pct, count = chains.allocated_pct(longest)
                print(f"{name:12} {seed} {pct:.2f} by {count} moves of any pods, {longest} for one", flush=True)  # noqa: T201
            after, count = moved(seen, packer)
            figures = f"{allocated_pct(seen):.2f} → {allocated_pct(after):.2f} by {count} moves"
            print(f"{name:12} {seed} {figures}; all kept at most {most:.2f}, "  # noqa: T201
                  f"whoever runs at most {bound_pct(trace, seed):.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
