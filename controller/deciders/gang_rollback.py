"""Rollback of partly started gangs: the plan completes them, or stops them whole after a deadline.

A leader that died in the middle of starting a gang leaves it partly started; its successor's plan completes it where
there is room. Where there is none, the members that run hold devices for nothing.
"""

from dataclasses import replace

import numpy as np

from cluster.actions import Evict
from cluster.plans import Phase, Plan, Reason, Step
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.deadlines import late, since
from controller.deciders.decider import Turn


def half_started(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    """Rows of the running members, by gang, for gangs that run with fewer members than they need and have pending ones.

    A gang without pending members is ending: its members finish one after another.
    """
    pods, count = snapshot.pods, len(snapshot.gangs)
    member = np.flatnonzero(pods.gang >= 0)
    runs = member[pods.node[member] != PENDING]
    members, running = np.bincount(pods.gang[member], minlength=count), np.bincount(pods.gang[runs], minlength=count)
    needed = np.minimum([gang.min_members for gang in snapshot.gangs], members)
    return {
        snapshot.gangs[number].name: tuple(runs[pods.gang[runs] == number].tolist())
        for number in np.flatnonzero((running > 0) & (running < needed)).tolist()
    }


def with_half_started_noted(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the instant since when each gang is partly started: now, where it was not known."""
    noted = since(half_started(snapshot), snapshot.half_started_since_s, snapshot.at_s)
    return snapshot if noted == snapshot.half_started_since_s else replace(snapshot, half_started_since_s=noted)


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """Stops whole the gangs that have been partly started past the deadline and that this plan does not complete, and
    those that restart because they lost a member."""
    half, deadline_s = half_started(snapshot), turn.decisions.gang_deadline_s
    restarts = [gang.name for gang in snapshot.gangs if gang.must_restart and gang.name in half]
    gangs = late(half, snapshot.half_started_since_s, at_s=snapshot.at_s, after_s=deadline_s)
    stopped = {gang: _taken_back(gang, len(half[gang]), deadline_s) for gang in gangs}
    stopped |= {gang: _member_lost(gang, len(half[gang])) for gang in restarts}
    return Plan(phases=tuple(_rolled_back(snapshot, gang, half[gang], why) for gang, why in stopped.items()))


def _taken_back(gang: str, running: int, deadline_s: float) -> Reason:
    words = f"{gang} ran with {running} members, too few, for {deadline_s:g} s and nothing completes it"
    return Reason("GangTakenBack", words, {"running": running})


def _member_lost(gang: str, running: int) -> Reason:
    words = f"{gang} lost a member and restarts whole with the {running} that run, as its onMemberLoss says"
    return Reason("MemberLost", words, {"running": running})


def _rolled_back(snapshot: Snapshot, gang: str, rows: tuple[int, ...], why: Reason) -> Phase:
    nodes = snapshot.nodes.names
    steps = (Evict(snapshot.pods.names[row], nodes[int(snapshot.pods.node[row])]) for row in rows)
    return Phase(f"take back {gang}", tuple(Step(action, why) for action in steps), whole=False)
