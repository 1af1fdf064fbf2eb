"""Reasons why units wait: what was short, on how many nodes, and for a gang in its best topology domain."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cluster.arrays import IntArray
from cluster.plans import Reason
from cluster.workloads import PodShape
from placement.engine.explanation import Scope, copies_now, obstacles, shortage
from placement.packing.draft import PackingDraft, members_running
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


class Reasons:
    """Reasons of the units that a draft leaves waiting, as resources are at its end."""

    # 2,000 pods of one shape, 4,000 nodes: 10 ms.

    def __init__(self, draft: PackingDraft) -> None:
        self._draft = draft
        self._known: dict[_Ask, Reason] = {}
        self._copies: dict[int, IntArray] = {}

    def of(self, unit: Unit) -> Reason:
        """What keeps a unit from starting that had its turn."""
        draft, label, need, domain = self._draft, None, unit.need, -1
        if unit.gang < 0:
            need = 1
        elif (label := draft.snapshot.gangs[unit.gang].within) is not None:
            of_node = draft.domain(label)
            runs = {int(of_node[draft.node[row]]) for row in members_running(draft, unit.gang)} - {-1}
            domain = min(runs, default=-1)
        ask = _Ask(tuple(Counter(map(draft.shape_number, unit.rows)).items()), need, label, domain)
        if ask not in self._known:
            if len(self._known) >= MOST_EXPLAINED:
                return UNEXPLAINED
            if ask.need > 1:
                self._known[ask] = self._held_back(ask)
            else:  # a pod that starts by itself
                scope = (
                    self._labelled(label) if label and domain < 0 else self._inside(label, domain) if label else None
                )
                self._known[ask] = shortage(draft.packer, self._shape(ask.count[0][0]), scope)
        return self._known[ask]

    def _held_back(self, ask: _Ask) -> Reason:
        """Reason of a gang of which too few members fit: what is short where most of them fit."""
        near = f" within one {ask.within}" if ask.within else ""
        words = f"{ask.need} members must start together{near} and do not all fit, so none was started; "
        room, where, scope = self._best(ask)
        # The first shape of which not all pods fit there; the first of all, if they only do not fit together.
        short = ask.count[0][0]
        for shape, wanted in ask.count:
            copies = self._copies_of(shape)
            if (copies if scope is None else copies[scope.nodes]).sum() < wanted:
                short = shape
                break
        found = obstacles(self._draft.packer, self._shape(short), scope)
        figures = {"need": float(ask.need), "room": float(room), **found.figures}
        has_room = ~np.any(list(found.nodes.values()), axis=0)
        of_nodes = [found.words] if found.words else []
        if has_room.any():
            figures["with_room"] = float(has_room.sum())
            of_nodes.insert(0, f"{has_room.sum()} with room")
        most = f"at most {room} of them fit{where}" if room < ask.need else "they do not fit together"
        words += f"{most}; of {len(has_room)} nodes: {', '.join(of_nodes) or 'no nodes'}"
        return Reason("GangHeldBack", words, figures)

    def _best(self, ask: _Ask) -> tuple[int, str, Scope | None]:
        """The nodes where most members of a gang fit: how many (at most, for unequal pods), ` in rack=r1`, and which.

        One domain of the required label, or all nodes for a gang without one.
        """
        copies = {shape: self._copies_of(shape) for shape, _ in ask.count}
        if ask.within is None:
            return sum(min(wanted, int(copies[shape].sum())) for shape, wanted in ask.count), "", None
        of_node = self._draft.domain(ask.within)
        labelled = np.flatnonzero(of_node >= 0)
        if not len(labelled):
            return 0, "", self._labelled(ask.within)
        room = np.zeros(int(of_node.max()) + 1, dtype=np.int64)
        for shape, wanted in ask.count:
            here = np.bincount(of_node[labelled], copies[shape][labelled]).astype(np.int64)
            room += np.minimum(wanted, here)
        best = ask.domain if ask.domain >= 0 else int(room.argmax())
        return int(room[best]), f" in {self._name(ask.within, best)}", self._inside(ask.within, best)

    def _shape(self, number: int) -> PodShape:
        return self._draft.snapshot.pods.shapes[number]

    def _copies_of(self, shape: int) -> IntArray:
        if shape not in self._copies:
            self._copies[shape] = copies_now(self._draft.packer, self._shape(shape))
        return self._copies[shape]

    def _labelled(self, label: str) -> Scope:
        return Scope(self._draft.domain(label) >= 0, f"without the label {label}")

    def _inside(self, label: str, domain: int) -> Scope:
        return Scope(self._draft.domain(label) == domain, f"outside {self._name(label, domain)}")

    def _name(self, label: str, domain: int) -> str:
        """Name of a topology domain: `rack=r1`."""
        member = int(np.flatnonzero(self._draft.domain(label) == domain)[0])
        return f"{label}={self._draft.snapshot.nodes.labels[member][label]}"
