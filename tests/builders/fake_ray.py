"""Fake Ray for tests: its actors answer or fail on request, on a clock that only waiting advances.

An actor can fall silent, get stuck or die. The fake implements the part of Ray that the pools use, and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cluster.version import VERSION

Mood = Literal["well", "silent", "stuck", "dead", "full", "wrong"]
"""Behaviour of an actor. silent: answers nothing, as on a frozen node. stuck: answers pings, never a plan. dead: every
call ends in an error, until Ray has restarted it. full: takes no more calls. wrong: its plan raises."""


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class PendingCallsLimitExceeded(RayError):  # noqa: N818 - Ray's name
    pass


@dataclass
class FakeExceptions:
    RayError: type[Exception] = RayError
    RayTaskError: type[Exception] = RayTaskError
    PendingCallsLimitExceeded: type[Exception] = PendingCallsLimitExceeded


@dataclass(eq=False)
class Call:
    """Call under way; its answer depends on its actor's mood."""

    actor: "FakeActor"
    method: str
    given: tuple[Any, ...]
    born: int
    """Number of the actor's process (`life`) to which it was sent."""

    @property
    def is_done(self) -> bool:
        if self.actor.mood == "dead" or self.born != self.actor.life:
            return True
        return self.actor.mood in ("well", "wrong") or (self.actor.mood == "stuck" and self.method == "ping")


@dataclass(eq=False)
class FakeActor:
    made: Any
    pid: int
    version: str = VERSION
    mood: Mood = "well"
    life: int = 0
    is_killed: bool = False

    def __getattr__(self, method: str) -> "Method":
        if method.startswith("_"):
            raise AttributeError(method)
        return Method(self, method)

    def restarted(self) -> None:
        """Restarts the actor as Ray does: in another process; the calls of the previous one are lost."""
        self.life, self.pid, self.mood = self.life + 1, self.pid + 1000, "well"


@dataclass
class Method:
    actor: FakeActor
    name: str

    def options(self, **_: Any) -> "Method":
        return self

    def remote(self, *given: Any) -> Call:
        if self.actor.mood == "full":
            raise PendingCallsLimitExceeded
        return Call(self.actor, self.name, given, self.actor.life)


@dataclass
class FakeRay:
    """Fake Ray. `actors` has every actor that was created, the latest last."""

    now_s: float = 0.0
    actors: list[FakeActor] = field(default_factory=list)
    exceptions: FakeExceptions = field(default_factory=FakeExceptions)
    on_wait: Callable[[], object] = lambda: None
    """Called during each wait, to let other things happen."""

    def clock(self) -> float:
        return self.now_s

    def sleep(self, for_s: float) -> None:
        self.on_wait()
        self.now_s += for_s

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **_: Any) -> Callable[[type], "FakeRay._Made"]:
        return lambda kind: FakeRay._Made(self, kind)

    def wait(self, calls: Sequence[Call], *, num_returns: int = 1, timeout: float) -> tuple[list[Call], list[Call]]:
        self.on_wait()
        done = [call for call in calls if call.is_done][:num_returns]
        if not done:
            self.now_s += timeout
        return done, [call for call in calls if call not in done]

    def get(self, call: Call, *, timeout: float) -> Any:
        if call.actor.mood == "dead" or call.born != call.actor.life:
            raise RayError("the actor is gone")
        if call.method == "ping":
            return call.actor.pid, call.actor.version
        if call.actor.mood == "wrong":
            raise RayTaskError("an error in the planner")
        try:
            return getattr(call.actor.made, call.method)(*call.given)
        except Exception as error:
            raise RayTaskError(str(error)) from error

    def kill(self, actor: FakeActor, *, no_restart: bool) -> None:
        actor.is_killed = no_restart

    @dataclass
    class _Made:
        ray: "FakeRay"
        kind: type

        def options(self, **_: Any) -> "FakeRay._Made":
            return self

        def remote(self, *given: Any) -> FakeActor:
            actor = FakeActor(self.kind(*given), pid=len(self.ray.actors) + 1)
            self.ray.actors.append(actor)
            return actor
