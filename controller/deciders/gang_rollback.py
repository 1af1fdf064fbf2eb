"""Gangs that stand half started: completed by the next plan, or taken back when that does not come about in time."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.actions import Evict
from cluster.plans import Phase, Plan, Reason, Step
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.ports import Brain


def half_started(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    """Rows of the members that run, for gangs of which fewer run than must and others wait.

    A gang of which nobody waits is ending: its members finish one after another.
    """
    pods = snapshot.pods
    found = {}
    for number, gang in enumerate(snapshot.gangs):
        mine = np.flatnonzero(pods.gang == number)
        running = mine[pods.node[mine] != PENDING]
        if 0 < len(running) < min(gang.min_members, len(mine)):
            found[gang.name] = tuple(running.tolist())
    return found


@dataclass(frozen=True, slots=True)
class TakesGangsBack:
    """A brain that also stops gangs whole which stood half started for too long.

    A leader that died in the middle of starting a gang leaves it so; its successor's plan completes it where there is
    room. Where there is none, what runs of it holds devices for nothing. Since when it stands so is counted by this
    process alone: a new leader gives it the whole time again.
    """

    brain: Brain
    deadline_s: float
    clock: Callable[[], float]
    since_s: dict[str, float] = field(default_factory=dict)
    """By gang, since when it was seen half started; monotonic."""

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        plan = self.brain.plan(snapshot, deadline_s)
        now_s, half = self.clock(), half_started(snapshot)
        for gone in self.since_s.keys() - half.keys():
            del self.since_s[gone]
        seats = (seat for action in plan.actions for seat in action.seat_changes)
        bound = {seat.pod for seat in seats if seat.node_before is None}
        late = [
            gang
            for gang in half
            if now_s - self.since_s.setdefault(gang, now_s) >= self.deadline_s
            and not bound & set(_names(snapshot, gang))
        ]
        phases = tuple(_taken_back(snapshot, gang, half[gang], self.deadline_s) for gang in late)
        return replace(plan, phases=plan.phases + phases)


def _names(snapshot: Snapshot, gang: str) -> list[str]:
    number = next(n for n, each in enumerate(snapshot.gangs) if each.name == gang)
    return [snapshot.pods.names[int(row)] for row in np.flatnonzero(snapshot.pods.gang == number)]


def _taken_back(snapshot: Snapshot, gang: str, rows: tuple[int, ...], deadline_s: float) -> Phase:
    words = f"{gang} ran with {len(rows)} members, too few, for {deadline_s:g} s and nothing completes it"
    why = Reason("GangTakenBack", words, {"running": len(rows)})
    nodes = snapshot.nodes.names
    steps = (Evict(snapshot.pods.names[row], nodes[int(snapshot.pods.node[row])]) for row in rows)
    return Phase(f"take back {gang}", tuple(Step(action, why) for action in steps), whole=False)
