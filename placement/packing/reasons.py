"""Reasons why units wait: what was short, on how many nodes, and for a gang in its best topology domain."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cluster.arrays import IntArray
from cluster.plans import Reason
from cluster.workloads import PodShape
from placement.engine.explanation import Scope, copies_now, obstacles, shortage
from placement.packing.draft import Draft, members_running
from placement.packing.units import Unit

MOST_EXPLAINED = 256
"""Largest number of different asks that a plan explains. Each takes a pass over the nodes; a tenant can make thousands
that differ."""
UNEXPLAINED = Reason("NoNodeFits", f"no node can take it now; a plan says why for {MOST_EXPLAINED} kinds of pods only")


@dataclass(frozen=True, slots=True)
class _Ask:
    """All that decides the reason of a unit: units with the same are explained once."""

    count: tuple[tuple[int, int], ...]
    """Pending pods by number of their shape, in order of service. The number stands for the shape, whose hash takes as
    long as its constraints are."""
    need: int
    within: str | None = None
    domain: int = -1
    """Domain in which the gang already runs, and in which it must stay; -1: none."""


@dataclass(frozen=True, slots=True, eq=False)
class _Best:
    """Nodes where most members of a gang fit."""

    room: int
    """Members that fit there: exact for equal pods, an upper bound for unequal ones."""
    where: str
    """` in rack=r1`; empty: anywhere."""
    scope: Scope | None


class Reasons:
    """Reasons of the units that a draft leaves waiting, as resources are at its end."""

    # 2,000 pods of one shape, 4,000 nodes: 10 ms.

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._known: dict[_Ask, Reason] = {}
        self._copies: dict[int, IntArray] = {}
        self._domains: dict[str, IntArray] = {}

    def of(self, unit: Unit) -> Reason:
        """What keeps a unit from starting that had its turn."""
        ask = self._ask(unit)
        if ask not in self._known:
            if len(self._known) >= MOST_EXPLAINED:
                return UNEXPLAINED
            self._known[ask] = self._held_back(ask) if ask.need > 1 else self._no_node(ask)
        return self._known[ask]

    def _ask(self, unit: Unit) -> _Ask:
        count = tuple(Counter(map(self._draft.shape_number, unit.rows)).items())
        if unit.gang < 0:
            return _Ask(count, 1)
        within = self._draft.snapshot.gangs[unit.gang].within
        if within is None:
            return _Ask(count, unit.need)
        of_node = self._domain(within)
        runs = sorted({int(of_node[self._draft.node[row]]) for row in members_running(self._draft, unit.gang)} - {-1})
        return _Ask(count, unit.need, within, runs[0] if runs else -1)

    def _no_node(self, ask: _Ask) -> Reason:
        """Reason of a pod that starts by itself."""
        scope = None
        if ask.within is not None:
            scope = self._inside(ask.within, ask.domain) if ask.domain >= 0 else self._labelled(ask.within)
        return shortage(self._draft.packer, self._shape(ask.count[0][0]), scope)

    def _held_back(self, ask: _Ask) -> Reason:
        """Reason of a gang of which too few members fit: what is short where most of them fit."""
        near = f" within one {ask.within}" if ask.within else ""
        words = f"{ask.need} members must start together{near} and do not all fit, so none was started; "
        best = self._best(ask)
        shape = self._short_shape(ask, best)
        found = obstacles(self._draft.packer, shape, best.scope)
        figures = {"need": float(ask.need), "room": float(best.room), **found.figures}
        has_room = ~np.any(list(found.nodes.values()), axis=0)
        if has_room.any():
            figures["with_room"] = float(has_room.sum())
        of_nodes = [f"{has_room.sum()} with room"] if has_room.any() else []
        of_nodes += [found.words] if found.words else []
        most = f"at most {best.room} of them fit{best.where}" if best.room < ask.need else "they do not fit together"
        words += f"{most}; of {len(has_room)} nodes: {', '.join(of_nodes) or 'no nodes'}"
        return Reason("GangHeldBack", words, figures)

    def _best(self, ask: _Ask) -> _Best:
        """The domain in which most members fit, or all nodes for a gang without a required label."""
        count = ask.count
        copies = {shape: self._copies_of(shape) for shape, _ in count}
        if ask.within is None:
            return _Best(sum(min(wanted, int(copies[shape].sum())) for shape, wanted in count), "", None)
        of_node = self._domain(ask.within)
        labelled = np.flatnonzero(of_node >= 0)
        if not len(labelled):
            return _Best(0, "", self._labelled(ask.within))
        room = np.zeros(int(of_node.max()) + 1, dtype=np.int64)
        for shape, wanted in count:
            here = np.bincount(of_node[labelled], copies[shape][labelled]).astype(np.int64)
            room += np.minimum(wanted, here)
        best = ask.domain if ask.domain >= 0 else int(room.argmax())
        return _Best(int(room[best]), f" in {self._name(ask.within, best)}", self._inside(ask.within, best))

    def _short_shape(self, ask: _Ask, best: _Best) -> PodShape:
        """The first shape of which not all pods fit there; the first of all, if they only do not fit together."""
        for shape, wanted in ask.count:
            copies = self._copies_of(shape)
            if (copies if best.scope is None else copies[best.scope.nodes]).sum() < wanted:
                return self._shape(shape)
        return self._shape(ask.count[0][0])

    def _shape(self, number: int) -> PodShape:
        return self._draft.snapshot.pods.shapes[number]

    def _copies_of(self, shape: int) -> IntArray:
        if shape not in self._copies:
            self._copies[shape] = copies_now(self._draft.packer, self._shape(shape))
        return self._copies[shape]

    def _domain(self, label: str) -> IntArray:
        if label not in self._domains:
            self._domains[label] = self._draft.snapshot.nodes.domain(label)
        return self._domains[label]

    def _labelled(self, label: str) -> Scope:
        return Scope(self._domain(label) >= 0, f"without the label {label}")

    def _inside(self, label: str, domain: int) -> Scope:
        return Scope(self._domain(label) == domain, f"outside {self._name(label, domain)}")

    def _name(self, label: str, domain: int) -> str:
        """Name of a topology domain: `rack=r1`."""
        member = int(np.flatnonzero(self._domain(label) == domain)[0])
        return f"{label}={self._draft.snapshot.nodes.labels[member][label]}"
