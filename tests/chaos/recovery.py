"""Planning goes on while the brain, its planners and the nodes of its Ray cluster suffer faults: times of recovery."""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

from controller.brain.launcher import RemoteBrain
from controller.brain.link import Link
from controller.brain.remote import RayBrain
from controller.deciders.decisions import Decisions
from placement.mix.planner import MixSettings
from tests.builders.random_clusters import random_cluster
from tests.chaos.faults import FAULTS, Fault, Scene, brain_server
from tests.chaos.nodes import ray_nodes

DEADLINE_S = 2.0
"""Planning deadline, the operator's default, seconds."""
GRACE_S = 1.0
"""Allowed excess of the deadline under any fault, seconds."""
EVERY_S = 0.2
UP_S = 90.0
IN_A_ROW = 3
"""Number of consecutive plans by Ray after which it has recovered."""


@dataclass(frozen=True, slots=True)
class Made:
    """One plan of the loop."""

    asked_at_s: float
    took_s: float
    by_ray: bool


@dataclass
class Planning:
    """Loop that requests plans continuously, like the operator's."""

    brain: RayBrain
    made: list[Made] = field(default_factory=list)
    ends: Event = field(default_factory=Event)

    def run(self) -> None:
        turn = 0
        while not self.ends.wait(EVERY_S):
            turn += 1
            before, asked_at_s = self.brain.counts.plans["ray"], time.monotonic()
            self.brain.plan(random_cluster(turn % 20), DEADLINE_S)
            took_s = time.monotonic() - asked_at_s
            self.made.append(Made(asked_at_s, took_s, self.brain.counts.plans["ray"] > before))

    def recovered_at_s(self, since_s: float) -> float | None:
        """Time of the first of `IN_A_ROW` consecutive plans by Ray that were requested after `since_s`."""
        row: list[Made] = []
        for plan in list(self.made):
            if plan.asked_at_s >= since_s:
                row = [*row, plan] if plan.by_ray else []
            if len(row) == IN_A_ROW:
                return row[0].asked_at_s + row[0].took_s
        return None


def outcomes(words: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Plans continuously while a Ray cluster of a head and two workers suffers one fault after the other.

    A record for each fault, `held` where no plan took longer than its deadline plus a second and the brain recovered in
    time. words: in the names of the faults; empty: all.
    """
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    with planning() as (scene, loop):
        yield from (outcome(scene, loop, fault) for fault in chosen)


@contextmanager
def planning(workers: int = 2) -> Iterator[tuple[Scene, Planning]]:
    """A Ray cluster, a brain server beside its head, and a loop that plans with it."""
    with ray_nodes(workers) as nodes:
        token = nodes.folder / "brain-token"
        token.write_text(secrets.token_hex(16), encoding="ascii")
        with brain_server(nodes, token) as (server, address), asked(address, token) as brain:
            loop = Planning(brain)
            thread = Thread(target=loop.run, daemon=True)
            thread.start()
            try:
                scene = Scene(nodes, server)
                settled(loop)
                yield scene, loop
            finally:
                loop.ends.set()
                thread.join(10.0)


@contextmanager
def asked(address: str, token: Path) -> Iterator[RayBrain]:
    decisions = Decisions(mix=MixSettings(explain=False))
    link = Link(RemoteBrain(address, token), decisions, Random(0))  # noqa: S311
    brain = RayBrain(link, decisions, time.monotonic)
    brain.lead(leads=True)
    try:
        yield brain
    finally:
        brain.close()


def settled(loop: Planning) -> None:
    """Wait until Ray plans, so that the faults are comparable."""
    since_s = time.monotonic()
    if not _wait(loop, since_s, UP_S):
        raise SystemExit(f"the brain did not come up: {loop.brain.standing.why}")


def outcome(scene: Scene, loop: Planning, fault: Fault) -> dict[str, Any]:
    """Inject the fault, end it, wait for the brain; returns the record of the plans meanwhile."""
    settled(loop)
    losses, late = loop.brain.standing.losses.total(), loop.brain.standing.late
    first = len(loop.made)
    undo = fault.do(scene)
    done_at_s = time.monotonic()
    _wait(loop, done_at_s, fault.hold_s, at_least_s=fault.hold_s)
    ended_at_s = time.monotonic()
    undo()
    since_s = ended_at_s if fault.counts_from_end else done_at_s
    _wait(loop, since_s, UP_S)
    back_at_s = loop.recovered_at_s(since_s)
    during = loop.made[first:]
    recovery_s = None if back_at_s is None else back_at_s - since_s
    slowest_s = max((plan.took_s for plan in during), default=float("inf"))
    return {
        "fault": fault.name,
        "plans": len(during),
        "by_ray": sum(plan.by_ray for plan in during),
        "slowest_s": round(slowest_s, 2),
        "recovery_s": None if recovery_s is None else round(recovery_s, 1),
        "wanted_s": fault.within_s,
        "from": "its end" if fault.counts_from_end else "the fault",
        "lost": loop.brain.standing.losses.total() - losses,
        "late": loop.brain.standing.late - late,
        "held": slowest_s <= DEADLINE_S + GRACE_S and recovery_s is not None and recovery_s <= fault.within_s,
    }


def _wait(loop: Planning, since_s: float, for_s: float, at_least_s: float = 0.0) -> bool:
    """Wait until the brain has recovered, up to `for_s` seconds; returns whether it has."""
    began_s, pause = time.monotonic(), Event()
    while (passed_s := time.monotonic() - began_s) < for_s:
        if passed_s >= at_least_s and loop.recovered_at_s(since_s) is not None:
            return True
        pause.wait(0.1)
    return loop.recovered_at_s(since_s) is not None
