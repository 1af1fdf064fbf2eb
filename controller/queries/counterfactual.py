"""A fleet under changes that the packing engine carries out one after another: what each would move, free and save."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.actions import Bind, Move
from cluster.arrays import BoolArray, FloatArray
from cluster.disruption import BudgetsLeft
from cluster.snapshot import PENDING, Snapshot, device_numbers
from cluster.workloads import WHOLE_GPU_MILLI, PodShape, is_pinned
from controller.queries.explain import PackerOf
from placement.packing.draft import NEVER, PackingDraft, Within
from placement.packing.gangs import Seat
from placement.packing.group_levels import seat_gang
from placement.packing.preemption import seat_by_preemption, spare_victims
from placement.packing.units import Unit, pending_units

TOP = NEVER - 1
"""Priority of a unit for which others are moved: above all, and none is stopped without a new place."""
MOST_STUCK = 30
"""Waiting units for which moves are sought, the most GPUs first; each takes some milliseconds at 5,000 nodes."""
MOST_EMPTIED = 400
"""Nodes whose pods are tried elsewhere."""


@dataclass(frozen=True, slots=True)
class FleetChange:
    """One change that the engine carried out; after it, alone or after others, the fleet breaks no constraint."""

    dollars_per_hour: float
    """What the fleet costs less, or the price of the devices that are put to use."""
    frees: str = ""
    """Node that is empty afterwards, but for pods that belong to it."""
    unit: str = ""
    """Unit that starts by it, `Gang/namespace/name`."""
    moves: tuple[Move, ...] = ()
    starts: tuple[Bind, ...] = ()


class Counterfactual:
    """The fleet as earlier changes leave it. No pod moves twice, and none moves to where another change made room, so
    that every change can also be carried out alone."""

    def __init__(self, now: Snapshot, packer_of: PackerOf, loose: BoolArray, own: BoolArray) -> None:
        """loose: pods that may be started elsewhere, own: those that belong to their node. Both of shape (pods,)."""
        self._loose, self._own = loose & ~own & (now.pods.gang < 0) & (now.pods.node != PENDING), own
        self.now = now = _pinned(now, self._loose)
        self._draft = PackingDraft(now, packer_of(now))
        self._draft.resistance[~self._loose] = NEVER
        self._budgets = BudgetsLeft(now.budgets, now.pods.names)
        self._loose[self._budgets.blocked()] = False
        pods, nodes = now.pods, len(now.nodes)
        self._with_gpus = np.array([shape.gpus > 0 for shape in pods.shapes], dtype=np.bool_)[pods.shape]
        self.device_usd = now.device_prices()
        self.node_usd: FloatArray = self.device_usd * now.nodes.gpus
        self.gone: BoolArray = np.zeros(nodes, dtype=np.bool_)
        """Nodes that are empty by a change, or given back."""
        self._left: BoolArray = np.zeros(nodes, dtype=np.bool_)
        """Nodes that a pod was moved from."""
        self._got: BoolArray = np.zeros(nodes, dtype=np.bool_)

    @property
    def used(self) -> BoolArray:
        """Nodes on which a pod holds a GPU. Shape (nodes,)."""
        node = self._draft.node[self._with_gpus]
        return np.bincount(node[node != PENDING], minlength=len(self.gone)) > 0

    def started(self) -> list[FleetChange]:
        """A change for each waiting unit that is started by moving others, with as few moves as the engine finds."""
        draft, done = self._draft, list[FleetChange]()
        stuck = [each for each in pending_units(draft) if self._with_gpus[each.rows[0]]]
        stuck.sort(key=lambda unit: -sum(draft.shape(row).total_gpu_milli for row in unit.rows))
        in_vain = set[object]()
        for unit in stuck:
            alike = (unit.need, draft.kind(unit.rows[0]))
            if len(in_vain) + len(done) >= MOST_STUCK:
                break
            if alike in in_vain:
                continue
            mark = draft.mark
            moved = self._make_room(unit) if (draft.resistance < TOP).any() else None
            if not moved:  # none, or the plan before would have started it
                draft.roll_back(mark)
                in_vain.add(alike)
                continue
            starts = [row for row in unit.rows if draft.node[row] != PENDING]
            milli_usd = sum(draft.shape(row).total_gpu_milli * self.device_usd[draft.node[row]] for row in starts)
            change = self._change(moved, starts, float(milli_usd) / WHOLE_GPU_MILLI)
            done.append(replace(change, unit=unit.label(self.now)))
            self._settle(moved)
            self._left[self.now.pods.node[moved]] = True
        return done

    def _make_room(self, unit: Unit) -> list[int] | None:
        """Rows that moved so that the unit starts; None where it cannot, or one of them would find no place."""
        draft, mark = self._draft, self._draft.mark

        def either(row: int, within: Within) -> bool:
            if draft.seat(row, within):
                return True
            return not isinstance(within, int) and seat_by_preemption(draft, row, TOP, within)

        if unit.gang < 0:
            is_seated = seat_by_preemption(draft, unit.rows[0], TOP, None)
        else:
            is_seated = seat_gang(draft, unit, Seat(either, below=TOP))
        if not is_seated:
            return None
        spare_victims(draft)
        victims = draft.unseated_since(mark)
        victims.sort(key=lambda row: -draft.shape(row).total_gpu_milli)
        may = all(self._loose[row] and draft.seat(row, ~self.gone) for row in victims)
        return victims if may and self._budgets.forbidding(victims) is None else None

    def emptied(self) -> list[FleetChange]:
        """A change for each node whose pods fit on others for less; first those that save most for a move."""
        draft, done = self._draft, list[FleetChange]()
        on = {node: self._leaving(node) for node in np.flatnonzero(self.used & (self.node_usd > 0)).tolist()}
        able = [node for node, rows in on.items() if self._loose[rows].all()]
        able.sort(key=lambda node: (len(on[node]) / self.node_usd[node], node))
        for node in able[:MOST_EMPTIED]:
            rows = self._leaving(node)
            if self._got[node] or not self._loose[rows].all() or self._budgets.forbidding(rows) is not None:
                continue
            mark, used = draft.mark, self.used & ~self.gone & ~self._left
            used[node] = False
            if not self._fit_elsewhere(node, rows, used):
                draft.roll_back(mark)
                continue
            change = self._change(rows, (), float(self.node_usd[node]))
            done.append(replace(change, frees=self.now.nodes.names[node]))
            self._settle(rows)
            self.gone[node] = True
        return done

    def _fit_elsewhere(self, node: int, rows: Sequence[int], used: BoolArray) -> bool:
        """Places the pods of a node on used ones, and beside these on idle ones that cost less in all."""
        draft, left_usd = self._draft, float(self.node_usd[node])
        for row in rows:
            draft.unseat(row)
        hosts = used | (self.now.nodes.gpus == 0)
        for row in sorted(rows, key=lambda row: (-draft.shape(row).total_gpu_milli, row)):
            if draft.seat(row, (used if self._with_gpus[row] else hosts) & ~self.gone):
                continue
            idle = ~used & ~self.gone & (self.node_usd > 0) & (self.node_usd < left_usd)
            idle[node] = False
            for usd in np.unique(self.node_usd[idle]).tolist() if self._with_gpus[row] else ():
                if draft.seat(row, idle & (self.node_usd == usd)):
                    break
            else:
                return False
            taken = int(draft.node[row])
            left_usd -= float(self.node_usd[taken])
            used[taken] = hosts[taken] = True
        return True

    def given_back(self, node: int, *, by_force: bool = False) -> FleetChange | None:
        """The node without GPU pods given back, its other pods elsewhere; None where they have no other place.

        by_force: also those that Tonnage would not stop.
        """
        draft, mark, rows = self._draft, self._draft.mark, self._leaving(node)
        if not by_force and not (self._loose[rows].all() and self._budgets.forbidding(rows) is None):
            return None
        hosts = (self.used | (self.now.nodes.gpus == 0)) & ~self.gone & ~self._left
        hosts[node] = False
        for row in rows:
            draft.unseat(row)
        if not all(draft.seat(row, hosts) for row in rows):
            draft.roll_back(mark)
            return None
        change = self._change(rows, (), float(self.node_usd[node]))
        self._settle(rows)
        self.gone[node] = True
        return replace(change, frees=self.now.nodes.names[node])

    def _leaving(self, node: int) -> list[int]:
        return [row for row in self._draft.pods_on(node) if not self._own[row]]

    def _settle(self, moved: Iterable[int]) -> None:
        for row in moved:
            self._loose[row] = False
            self._draft.resistance[row] = NEVER
            self._got[self._draft.node[row]] = True

    def _change(self, moved: Sequence[int], started: Sequence[int], dollars: float) -> FleetChange:
        names, nodes, draft = self.now.pods.names, self.now.nodes.names, self._draft

        def seat(row: int) -> tuple[str, tuple[int, ...]]:
            return nodes[int(draft.node[row])], device_numbers(int(draft.devices[row]))

        return FleetChange(
            dollars,
            moves=tuple(Move(names[row], nodes[int(self.now.pods.node[row])], *seat(row)) for row in moved),
            starts=tuple(Bind(names[row], *seat(row)) for row in started),
        )


def _pinned(now: Snapshot, loose: BoolArray) -> Snapshot:
    """The fleet in which pods that name no GPU type may use those that surely serve them: with as much device memory.

    What a pod of unknown need would do on less memory is not known.
    """
    shapes, rows = now.pods.shapes, dict[int, PodShape]()
    made: dict[tuple[PodShape, int], PodShape] = {}
    for row in np.flatnonzero(loose).tolist():
        own, kind = shapes[now.pods.shape[row]], int(now.nodes.gpu_type[now.pods.node[row]])
        if not own.gpus:
            continue
        if kind < 0 or is_pinned(own.node_terms):
            loose[row] = False
        elif not own.gpu_types:
            least = now.gpu_types[kind].memory_bytes
            able = tuple(sorted(each.name for each in now.gpu_types if each.memory_bytes >= least))
            rows[row] = made.setdefault((own, kind), replace(own, gpu_types=able))
    return replace(now, pods=now.pods.reshaped(rows)) if rows else now
