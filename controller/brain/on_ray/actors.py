"""Ray actors: thin shells around plain classes, so that their work is tested without Ray.

Arguments and results are arrays. A planner answers pings in a separate thread while it plans, holds no credentials and
has no side effects: whatever happens to it, nothing is done twice.
"""

import os
from typing import Any

import numpy as np

from cluster.version import VERSION
from controller.brain.background_frames import proposal_over
from controller.brain.planner import Planner
from controller.deciders.background import Proposer
from controller.deciders.decisions import Decisions

PENDING_CALLS = 4
"""Most calls that may wait at an actor: it works on one, besides pings. A caller that has more waiting should plan
without it."""
HEALTH = "health"
"""Concurrency group (thread) in which pings are answered."""
SLOT_CPUS = 0.05
"""Processors booked for a slot's actor, as a fraction of one: it runs when planners rest. More than zero, so that a
head that offers no processor gets none."""
YIELDS = 10
"""Niceness of a slot's process: where processors are short, plans come first."""


class PlannerActor:
    """Planner as a Ray actor."""

    def __init__(self, decisions: Decisions) -> None:
        self._planner = Planner(decisions)

    def plan(self, frame: Any, deadline_s: float) -> Any:
        """The plan's frame. frame: a snapshot's, as bytes in an array."""
        return _array(self._planner.plan(memoryview(frame), deadline_s))

    def stage(self, number: int, frame: Any, so_far: Any, part: int, parts: int, deadline_s: float) -> list[Any]:
        """The frames of the plans that a stage adds. so_far: frame of the plan before the stage."""
        plans = self._planner.stage(number, memoryview(frame), memoryview(so_far), part, parts, deadline_s)
        return [_array(plan) for plan in plans]

    def ping(self) -> tuple[int, str]:
        """Its process id, and its version of Tonnage."""
        return os.getpid(), VERSION


class SlotActor:
    """Background decider as a Ray actor."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        os.nice(YIELDS)

    def propose(self, frame: Any, memory: bytes, deadline_s: float) -> bytes:
        """The result's frame. frame: a snapshot's, as bytes in an array."""
        return proposal_over(self._proposer, memoryview(frame), memory, deadline_s)

    def ping(self) -> tuple[int, str]:
        return os.getpid(), VERSION


def hire(ray: Any, decisions: Decisions, name: str) -> Any:
    """A planner actor that is being started. It books a processor, so it never runs on a head that offers none.

    name: for people who look at the cluster, never used twice. The actor ends with the process that started it.
    """
    return _hired(ray, PlannerActor, name, 1.0, decisions)


def hire_for_slot(ray: Any, proposer: Proposer, name: str) -> Any:
    """A background decider's actor that is being started."""
    return _hired(ray, SlotActor, name, SLOT_CPUS, proposer)


def _hired(ray: Any, kind: type, name: str, cpus: float, given: Any) -> Any:
    return (
        ray.remote(max_concurrency=1, concurrency_groups={HEALTH: 1})(kind)
        .options(
            name=name,
            num_cpus=cpus,
            max_restarts=-1,
            max_task_retries=0,
            max_pending_calls=PENDING_CALLS,
            scheduling_strategy="SPREAD",
        )
        .remote(given)
    )


def _array(frame: bytes) -> Any:
    return np.frombuffer(frame, np.uint8)
