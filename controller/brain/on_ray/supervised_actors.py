"""Supervision of actors on Ray: each fills one numbered post, and a silent, stuck or lost actor is replaced.

Nothing here waits without a limit, because Ray itself may wait for a minute. A replaced actor may still run, but
without effect: actors have no side effects.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from cluster.clock import Clock
from cluster.version import VERSION
from controller.brain.on_ray.actors import HEALTH

PING_EVERY_S = 1.0
PING_LOST_EVERY_S = 0.1
"""Seconds between pings of a lost actor: Ray restarts it within 0.5 to 1.2 s, and refuses pings at once until then."""
SILENT_S = 4.0
"""Seconds without an answer to a ping after which the actor's process or node counts as frozen. Pings have a thread of
their own, which in a busy process is served within 20 ms; Ray itself gives a silent node up after 7 s."""
STALLED_S = 3.0
"""Seconds past its deadline after which a running actor counts as stuck."""
BIRTH_S = 15.0
"""Seconds in which a new actor must answer; after that its node is considered broken, and another actor is tried."""
TICK_S = 0.1

Useless = Literal["unborn", "silent", "stuck", "lost"]
"""Why an actor was replaced. unborn: never answered. silent: no longer answers. stuck: does not finish. lost: was gone
and did not come back."""


class QueueFull(Exception):  # noqa: N818 - an ordinary outcome
    """Error: the actor has as many waiting calls as it accepts."""


class Mistaken(Exception):  # noqa: N818 - an ordinary outcome with a reason
    """Error: the call raised an exception in the actor."""


class Lost(Exception):  # noqa: N818 - an ordinary outcome
    """Error: the actor was lost during the call."""


@dataclass(slots=True)
class Post:
    """Post: the place of one actor, and the actor that fills it now."""

    actor: Any
    since_s: float
    """Instant at which the actor was started."""
    pid: int = 0
    """Process id of the actor; 0: it has not answered yet."""
    ping: Any = None
    asked_at_s: float = -PING_EVERY_S
    """Instant at which the ping under way was sent."""
    answered_at_s: float = 0.0
    task: Any = None
    """Call under way, kept also when its result is no longer needed."""
    task_over_s: float = 0.0
    """Deadline of the call under way."""

    def is_overdue(self, now_s: float) -> bool:
        return self.task is not None and now_s > self.task_over_s


@dataclass(slots=True)
class Posts:
    """Posts of one kind of actor, numbered."""

    ray: Any
    clock: Clock
    hire: Callable[[int], Any]
    """Function that starts a new actor for the post with this number."""
    each: list[Post] = field(default_factory=list)
    restarts: int = 0
    """Restarted and replaced actors, whether by Ray or by this class."""

    def fill(self, count: int) -> None:
        """Starts actors for this many posts, without waiting for them."""
        self.each = [self._hired(number) for number in range(count)]

    @property
    def up(self) -> int:
        """Number of actors that answer pings."""
        return sum(bool(post.pid) for post in self.each)

    def look_after(self) -> list[tuple[int, Useless]]:
        """Sends and reads pings, and replaces useless actors. Returns (post, reason) of each. Never waits."""
        replaced: list[tuple[int, Useless]] = []
        for number, post in enumerate(self.each):
            self._hear(post)
            why = self._useless(post)
            if why:
                self._replace(number)
                replaced.append((number, why))
            elif post.ping is None and self.clock() >= post.asked_at_s + (
                PING_EVERY_S if post.pid else PING_LOST_EVERY_S
            ):
                self._send_ping(post)
        return replaced

    def give(self, post: Post, call: Callable[[], Any], over_at_s: float) -> None:
        """Calls the actor. Raises QueueFull."""
        try:
            post.task, post.task_over_s = call(), over_at_s
        except self.ray.exceptions.PendingCallsLimitExceeded as error:
            raise QueueFull from error

    def taken(self, post: Post) -> Any:
        """The result of the call under way, which is cleared; None while it runs. Raises Mistaken, Lost."""
        if not self.is_done(post):
            return None
        task, post.task = post.task, None
        try:
            return self.ray.get(task, timeout=TICK_S)
        except self.ray.exceptions.RayTaskError as error:
            raise Mistaken(str(error)) from error
        except self.ray.exceptions.RayError as error:
            post.pid = 0
            raise Lost from error

    def is_done(self, post: Post) -> bool:
        return post.task is not None and bool(self.ray.wait([post.task], timeout=0)[0])

    def _hear(self, post: Post) -> None:
        """Reads what has arrived: the answer to the ping, and results that are no longer needed."""
        if post.ping is not None and self.ray.wait([post.ping], timeout=0)[0]:
            ping, post.ping = post.ping, None
            try:
                pid, version = self.ray.get(ping, timeout=TICK_S)
            except self.ray.exceptions.RayError:
                post.pid = 0  # Ray restarts it automatically; a later ping shows when
            else:
                if version != VERSION:
                    raise RuntimeError(f"an actor runs Tonnage {version}, this is {VERSION}; run one image everywhere")
                self.restarts += bool(post.pid and post.pid != pid)
                post.pid, post.answered_at_s = pid, self.clock()
        if post.is_overdue(self.clock()) and self.is_done(post):
            post.task = None

    def _useless(self, post: Post) -> Useless | None:
        now_s = self.clock()
        if not post.pid and not post.answered_at_s:
            return "unborn" if now_s > post.since_s + BIRTH_S else None
        if post.ping is not None and now_s > post.asked_at_s + SILENT_S:
            return "silent"
        if post.is_overdue(now_s - STALLED_S):
            return "stuck"
        return "lost" if not post.pid and now_s > post.answered_at_s + BIRTH_S else None

    def _replace(self, number: int) -> None:
        """Replaces a useless actor, and kills it where that is possible.

        Nothing waits for its end: a frozen process ends when it thaws.
        """
        self.ray.kill(self.each[number].actor, no_restart=True)
        self.each[number] = self._hired(number)
        self.restarts += 1

    def _hired(self, number: int) -> Post:
        return Post(self.hire(number), self.clock())

    def _send_ping(self, post: Post) -> None:
        # Full: the calls before it are stuck. Whether it is silent shows in the ping that is under way.
        with suppress(self.ray.exceptions.PendingCallsLimitExceeded):
            post.ping = post.actor.ping.options(concurrency_group=HEALTH).remote()
        post.asked_at_s = self.clock()
