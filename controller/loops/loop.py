"""Part: what a decider needs besides its kinds and facts, such as watches or a fast loop of its own."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from cluster.clock import Clock
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.kube.cache import Cache
from controller.kube.connection import Connection
from controller.kube.leader_election import Leadership
from controller.kube.loop_thread import LoopThread
from controller.kube.sender import Applier
from controller.kube_world.observer import Caches
from controller.metrics.registry import Meter
from controller.settings import OperatorSettings


class Courier(Protocol):
    """Another part's messages on the same link, signed as all others. Called in the link's thread."""

    @property
    def sends(self) -> str:
        """Kind of its messages to agents; empty where it sends none."""
        ...

    @property
    def hears(self) -> str:
        """Kind of its messages from agents."""
        ...

    def mail_for(self, node: str) -> bytes | None:
        """Text for a node from which it has heard; sent again only when it changes, or on a new connection."""
        ...

    def heard(self, node: str, text: bytes) -> str:
        """Takes a text; returns why it is refused, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Clocks:
    monotonic: Clock
    """Clock of fast loops and their leases; it also counts while the machine is suspended."""
    wall: Clock
    """Seconds since the epoch, for people."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the operator process offers to a part at its start."""

    loop: LoopThread
    """Event loop of the connection to the API server."""
    connection: Connection
    """Connection to the API server; it belongs to `loop`."""
    applier: Applier
    """Sends writes while this replica leads."""
    leadership: Leadership
    caches: Caches
    """Watched objects that planning reads."""
    meter: Meter
    clocks: Clocks
    changed: Callable[[], None]
    """To be called when facts have changed, so that a cycle follows soon."""
    hurry: Callable[[], None]
    """To be called when a cycle should follow at once, however short the time since the last."""
    stack: ExitStack
    """Ends the part, before the Lease is released."""
    couriers: list[Courier] = field(default_factory=list)
    """What travels on the agents' link besides power; any part may add one at its start."""


class FactSource(Protocol):
    """One decider's contribution to the snapshot, from what it observed itself."""

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        """Watches of its own, run with all others; the operator is ready when they are synced."""
        ...

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its facts; unchanged where there are none."""
        ...


class RunningPart(FactSource, Protocol):
    """A part that the settings enable."""

    def start(self, around: Surroundings) -> dict[str, int]:
        """Starts its loop and its reports; returns the ports that it listens on, by name."""
        ...

    def learn(self, plan: Plan) -> None:
        """Takes what deciders decided for it (`Plan.health`, `Plan.fits`), after each cycle. Must be quick."""
        ...

    def probe(self) -> str | None:
        """Why it has to be restarted; None while it runs."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Registered part of the operator."""

    name: str
    enabled: Callable[[OperatorSettings], RunningPart | None]
    """Function that returns the part as the settings configure it; None where it is not enabled."""
