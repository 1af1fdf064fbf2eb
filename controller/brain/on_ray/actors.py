"""Ray actors: thin shells around plain classes, so that what they do is tested without Ray.

Arrays come in and go out. A planner answers pings from a thread of their own while it plans, holds no credentials and
does nothing but think: whatever becomes of it, nothing happens twice.
"""

import os
from typing import Any

import numpy as np

from cluster.version import VERSION
from controller.brain.background_frames import thought_over
from controller.brain.planner import Planner
from controller.deciders.background import Occupant
from controller.deciders.decisions import Decisions

PENDING_CALLS = 4
"""A planner has one call to answer at a time, and pings; who has more waiting should plan without it."""
HEALTH = "health"
"""The thread in which pings are answered."""
SLOT_CPUS = 0.05
"""Of a processor, booked for a slot's actor: it thinks when planners rest. More than nothing, so that a head that
offers no processor gets none."""


class PlannerActor:
    """A planner as Ray sees it."""

    def __init__(self, decisions: Decisions) -> None:
        self._planner = Planner(decisions)

    def plan(self, frame: Any, deadline_s: float) -> Any:
        """The plan's frame. frame: a snapshot's, as bytes in an array."""
        return _array(self._planner.plan(memoryview(frame), deadline_s))

    def stage(self, number: int, frame: Any, so_far: Any, part: int, parts: int, deadline_s: float) -> list[Any]:
        """The frames of what a stage adds. so_far: the frame of the plan until then."""
        plans = self._planner.stage(number, memoryview(frame), memoryview(so_far), part, parts, deadline_s)
        return [_array(plan) for plan in plans]

    def ping(self) -> tuple[int, str]:
        """Its process, and the version of Tonnage that it runs."""
        return os.getpid(), VERSION


class SlotActor:
    """An occupant of a slot as Ray sees it."""

    def __init__(self, occupant: Occupant) -> None:
        self._occupant = occupant

    def think(self, frame: Any, memory: bytes, deadline_s: float) -> bytes:
        """The thought's frame. frame: a snapshot's, as bytes in an array."""
        return thought_over(self._occupant, memoryview(frame), memory, deadline_s)

    def ping(self) -> tuple[int, str]:
        return os.getpid(), VERSION


def hire(ray: Any, decisions: Decisions, name: str) -> Any:
    """A planner that is on its way. It takes a processor, so it never lands on a head that offers none.

    name: for people who look at the cluster, never given twice. It ends with the process that hired it.
    """
    return _hired(ray, PlannerActor, name, 1.0, decisions)


def hire_for_slot(ray: Any, occupant: Occupant, name: str) -> Any:
    """The actor of a slot, on its way."""
    return _hired(ray, SlotActor, name, SLOT_CPUS, occupant)


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
