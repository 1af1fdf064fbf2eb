"""Test bench of the world contract: a world with a cluster, how it comes to rest, and what it may decline."""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.actions import Action, Move
from cluster.snapshot import Snapshot
from controller.ports import World
from simulator.world import SimulatedWorld

MAY_BE_DECLINED: frozenset[type[Action]] = frozenset({Move})
"""Actions that a world need not be capable of. It refuses them by an ActionError and changes nothing; deciders give
them only where the operator asked for them."""


@dataclass(frozen=True)
class Stage:
    """A world with a cluster in it."""

    world: World
    settled: Callable[[], Snapshot]
    """Snapshot once the cluster is at rest: watches have caught up, and owners have recreated evicted pods."""
    declines: frozenset[type[Action]] = frozenset()


Start = Callable[[Snapshot], Stage]


def simulated(snapshot: Snapshot) -> Stage:
    world = SimulatedWorld(snapshot)
    return Stage(world, world.observe)
