"""Background deciders for tests: one that counts its runs, and fails as its snapshot asks for."""

import os
from dataclasses import dataclass
from threading import Event

from cluster.actions import Evict
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from controller.deciders.decider import PROPOSE_S, Proposal
from tests.builders.fleet import node, pod, world

FAILS, STALLS, DIES = "fails", "stalls", "dies"


def snapshot_that(does: str = "") -> Snapshot:
    """A cluster over which `Counting` thinks, fails, stalls or dies."""
    return world([node("a", 4), *([node(does, 0)] if does else [])], [pod("p", 1, on="a", devices=(0,))])


@dataclass(frozen=True, slots=True)
class Counting:
    """Remembers how often it has run; proposes to evict the pod `p`, and stands by it as long as `p` runs."""

    name: str = "counting"
    within_s: float = PROPOSE_S

    def propose(self, snapshot: Snapshot, memory: bytes, deadline_s: float) -> Proposal:
        if FAILS in snapshot.nodes.names:
            raise ArithmeticError("as it was told")
        if STALLS in snapshot.nodes.names:
            Event().wait()
        if DIES in snapshot.nodes.names:
            os._exit(1)
        times = int(memory or b"0") + 1
        return Proposal(_evicting(f"proposal {times}"), str(times).encode())

    def adopt(self, snapshot: Snapshot, proposed: Plan) -> Plan:
        row = snapshot.pods.names.row("p")
        return proposed if row is not None and snapshot.pods.node[row] >= 0 else Plan()


def _evicting(words: str) -> Plan:
    return Plan(phases=(Phase("told", (Step(Evict("p", "a"), Reason("Told", words)),)),))
