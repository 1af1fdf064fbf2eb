"""Control loop beside the planning cycle: what a decider needs besides kinds and facts, such as watches of its own."""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any, Protocol

import structlog

from cluster import clock, errors, plans
from cluster.snapshot import Snapshot
from controller.api.kind import Kind
from controller.api.structs import OwnObject
from controller.background.tasks import Background
from controller.kube import cache, connection, leader_election, sender
from controller.kube.connection import Connection
from controller.kube.request import Body
from controller.kube_world.observer import Caches
from controller.metrics.registry import Meter
from controller.objects.own_objects import own_from
from controller.objects.read import Read
from controller.report.events import AT_A_TIME, Events

log = structlog.get_logger(__name__)


class Leader(Protocol):
    """Leadership of this process; any thread may ask."""

    @property
    def epoch(self) -> int:
        """Epoch of the Lease."""
        ...

    def may_write(self) -> bool:
        """Whether this process leads."""
        ...


class AgentChannel(Protocol):
    """A loop's own messages on the agents' connections, which say whose they are. Called in the connections' thread."""

    @property
    def sends(self) -> str:
        """Kind of its messages to agents; empty where it sends none."""
        ...

    @property
    def receives(self) -> str:
        """Kind of its messages from agents."""
        ...

    def message_to(self, node: str) -> bytes | None:
        """Text for a node that has reported; sent again only when it changes, or on a new connection."""
        ...

    def receive(self, node: str, text: bytes) -> str:
        """Takes a text; returns why it is refused, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class LoopClocks:
    monotonic: clock.Clock
    """Clock of fast loops and their leases; it also counts while the machine is suspended."""
    wall: clock.Clock
    """Seconds since the epoch, for people."""


class CycleTrigger:
    """Requests for a planning cycle, from any thread."""

    def __init__(self, monotonic: clock.Clock = time.monotonic) -> None:
        self._changed, self._urgent = Event(), Event()
        self._monotonic = monotonic
        self._first_s = self._last_s = -math.inf

    @property
    def is_set(self) -> bool:
        """Whether something has changed since the last cycle began."""
        return self._changed.is_set()

    @property
    def is_urgent(self) -> bool:
        """Whether the next cycle should not wait until its interval has passed."""
        return self._urgent.is_set()

    def has_settled(self, quiet_s: float, most_s: float) -> bool:
        """Whether nothing changed for `quiet_s`, or the first change was `most_s` ago."""
        now_s = self._monotonic()
        return now_s - self._last_s >= quiet_s or now_s - self._first_s >= most_s

    def changed(self) -> None:
        """Asks for a cycle soon, since facts have changed."""
        self._last_s = self._monotonic()
        if not self._changed.is_set():
            self._first_s = self._last_s
        self._changed.set()

    def hurry(self) -> None:
        """Asks for a cycle at once, however short the time since the last."""
        self._urgent.set()
        self._changed.set()

    def wait(self, most_s: float) -> None:
        """Waits until something has changed, for so many seconds at most."""
        self._changed.wait(most_s)

    def clear(self) -> None:
        self._changed.clear()
        self._urgent.clear()


@dataclass(frozen=True, slots=True)
class LoopContext:
    """What the operator process offers to a loop at its start."""

    thread: connection.LoopThread
    """Event loop of the connection to the API server."""
    connection: Connection
    """Connection to the API server; it belongs to `thread`."""
    applier: sender.Applier
    """Sends writes while this replica leads."""
    leadership: leader_election.Leadership
    caches: Caches
    """Watched objects that planning reads."""
    meter: Meter
    clocks: LoopClocks
    trigger: CycleTrigger
    background: Background
    """Where work is given to that takes long."""
    identity: str
    """Name of this process in Events."""
    stack: ExitStack
    """Ends the loop, before the Lease is released."""
    channels: list[AgentChannel] = field(default_factory=list)
    """What travels on the agents' connections besides power; any loop may add one at its start."""

    async def post(self, path: str, body: Body) -> bytes:
        """Creates an object that the API server answers at once, from any event loop. Raises ActionError."""
        return await self.thread.run_from_another(self.connection.write("POST", path, body))

    @property
    def reports_applier(self) -> sender.Applier:
        """Sender of reports, with fewer writes at a time than that of plans."""
        return replace(self.applier, concurrency=AT_A_TIME)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs this in the connection's event loop until the operator ends."""
        self.stack.callback(self.thread.begin(work).cancel)

    def events_about(self, kind: str, objects: cache.Cache[Any]) -> Events:
        """Events about objects of this kind, which are written until the operator ends."""

        def uid(of_kind: str, name: str) -> str | None:
            found = objects.get(name) if of_kind == kind else None
            return found.metadata.uid if found else None

        events = Events(self.reports_applier, uid, self.clocks.wall, lambda: self.leadership.epoch, self.identity)
        self.keep(events.write())
        return events


class ControlLoop(ABC):
    """A loop that the settings enable. Its facts join each snapshot; what plans learned for it comes back."""

    seen: Snapshot | None = None
    """The last snapshot, with the facts of all loops."""

    @property
    def caches(self) -> tuple[cache.Cache[Any], ...]:
        """Watches of its own, run with all others; the operator is ready when they are synced."""
        return ()

    @abstractmethod
    def start(self, context: LoopContext) -> dict[str, int]:
        """Starts its turns and its reports; returns the ports that it listens on, by name."""

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its facts; unchanged where there are none."""
        return snapshot

    def learn(self, plan: plans.Plan) -> None:  # noqa: B027 - most loops learn nothing from plans
        """Takes what deciders decided for it (`Plan.health`), after each cycle. Must be quick."""

    def probe(self) -> str | None:
        """Why it has to be restarted; None while it runs."""
        return None


async def repeat(turn: Callable[[], Awaitable[None]], every_s: float, failed: str) -> None:
    """Takes turns for ever. An internal error is logged with these words, and the next turn tries again."""
    while True:
        try:
            await turn()
        except Exception:
            log.exception(failed)
        await asyncio.sleep(every_s)


def specs_in(
    kind: Kind, objects: Mapping[str, OwnObject]
) -> tuple[dict[str, Any], dict[str, tuple[errors.Mistake, ...]]]:
    """Specs that can be used, by the objects' names, and the errors of the others."""
    specs: dict[str, Any] = {}
    mistakes: dict[str, tuple[errors.Mistake, ...]] = {}
    for name, obj in objects.items():
        read = own_from(name, kind, obj)
        if isinstance(read, Read):
            specs[name] = read.object.spec
        else:
            mistakes[name] = read
    return specs, mistakes
