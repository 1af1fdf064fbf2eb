"""A running brain on its own embedded Ray, as the operator starts it, and whether two plans are the same."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from random import Random
from threading import Event
from typing import Any

import numpy as np

from cluster.arrays import Names
from cluster.plans import Certificate, Plan
from controller.brain.launcher import ChildBrain
from controller.brain.link import Link
from controller.brain.on_ray.ray_start import RayStart
from controller.brain.remote import RayBrain
from controller.deciders.decisions import Decisions
from placement.mix.planner import MixSettings

WITHIN_S = 120.0
"""Timeout of a brain's start on a busy machine, and deadline of compared plans, which must not depend on it,
seconds."""
DECISIONS = Decisions(mix=MixSettings(explain=False))


@contextmanager
def embedded(decisions: Decisions, *, planners: int) -> Iterator[RayBrain]:
    """A running brain on Ray, with its child process."""
    peer = ChildBrain(RayStart(folder="", planners=planners))
    link = Link(peer, decisions, Random(0))  # noqa: S311 - spreads restarts, hides nothing
    brain = RayBrain(link, decisions, time.monotonic)
    brain.lead(leads=True)
    try:
        over_at_s, pause = time.monotonic() + WITHIN_S, Event()
        while brain.standing.state != "up":
            if time.monotonic() > over_at_s:
                raise SystemExit(f"the brain on Ray did not start: {brain.standing.why}")
            pause.wait(0.02)
        yield brain
    finally:
        brain.close()


def plain(value: Any) -> Any:
    """A plan as data that compares by content, without solver times."""
    match value:
        case np.ndarray():
            return value.tolist()
        case Names() | tuple():
            return [plain(each) for each in value]
        case Mapping():
            return {key: plain(each) for key, each in value.items()}
    if is_dataclass(value):
        names = [f.name for f in fields(value) if not (isinstance(value, Certificate) and f.name == "seconds")]
        return {name: plain(getattr(value, name)) for name in names}
    return value


def plans_alike(one: Plan, other: Plan) -> bool:
    """Whether two plans are equal."""
    return bool(plain(one) == plain(other))
