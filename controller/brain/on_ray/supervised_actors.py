"""Posts: actors on Ray and how they are watched, whatever they do. Who is silent, stuck or lost is replaced.

Nothing here waits without a limit, for Ray itself may wait for a minute: an actor that does not answer is replaced by a
new one, and whatever the old one still does has no effect, for actors only think.
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
"""The same of one that was lost: Ray has it back within 0.5 to 1.2 s, and refuses pings at once until then."""
SILENT_S = 4.0
"""A ping unanswered for so long: the actor's process or node is frozen. Pings have a thread of their own, which in a
busy process is served within 20 ms; Ray itself gives a silent node up after 7 s."""
STALLED_S = 3.0
"""So long past its deadline an actor that still thinks is taken for stuck."""
BIRTH_S = 15.0
"""A new actor that does not answer for so long landed where nothing works; another one is tried."""
TICK_S = 0.1

Useless = Literal["unborn", "silent", "stuck", "lost"]
"""Never answered; answers no more; does not finish; was gone and did not come back."""


class QueueFull(Exception):  # noqa: N818 - an ordinary outcome
    """The actor has as many calls waiting as it takes."""


class Mistaken(Exception):  # noqa: N818 - an ordinary outcome with a reason
    """What the actor was asked raised an error there."""


class Lost(Exception):  # noqa: N818 - an ordinary outcome
    """The actor went while it was at it."""


@dataclass(slots=True)
class Post:
    """One post and whoever holds it now."""

    actor: Any
    since_s: float
    """When it was hired."""
    pid: int = 0
    """Of its process; 0: it has not answered yet."""
    ping: Any = None
    asked_at_s: float = -PING_EVERY_S
    """When the ping under way was sent."""
    answered_at_s: float = 0.0
    task: Any = None
    """The call under way, also after nobody waits for it any more."""
    task_over_s: float = 0.0
    """When the call under way should have been done."""

    def is_overdue(self, now_s: float) -> bool:
        return self.task is not None and now_s > self.task_over_s


@dataclass(slots=True)
class Posts:
    """Posts that are held by one kind of actor, numbered."""

    ray: Any
    clock: Clock
    hire: Callable[[int], Any]
    """A new actor for the post with this number."""
    each: list[Post] = field(default_factory=list)
    restarts: int = 0
    """Actors that came in place of others, whoever brought them back."""

    def fill(self, count: int) -> None:
        """Hire for so many posts, and wait for nobody."""
        self.each = [self._hired(number) for number in range(count)]

    @property
    def up(self) -> int:
        """Actors that answer."""
        return sum(bool(post.pid) for post in self.each)

    def look_after(self) -> list[tuple[int, Useless]]:
        """Send and read pings; replace whoever is of no use. Never waits. Returns who was replaced and why."""
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
        """Give the actor something to do. Raises QueueFull."""
        try:
            post.task, post.task_over_s = call(), over_at_s
        except self.ray.exceptions.PendingCallsLimitExceeded as error:
            raise QueueFull from error

    def taken(self, post: Post) -> Any:
        """What came of the call under way, which is none any more; None while it goes on. Raises Mistaken, Lost."""
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
        """Read what has come: the answer to the ping, and results that nobody waits for any more."""
        if post.ping is not None and self.ray.wait([post.ping], timeout=0)[0]:
            ping, post.ping = post.ping, None
            try:
                pid, version = self.ray.get(ping, timeout=TICK_S)
            except self.ray.exceptions.RayError:
                post.pid = 0  # Ray brings it back by itself; the next ping tells when
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
        """A new actor in place of a useless one, which is ended where that is possible.

        Nobody waits for its end: a frozen process ends when it thaws.
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
