"""The crew: the planners on Ray that a brain process drives, whom it asks, watches and replaces.

One thread owns it. Nothing here waits without a limit, for Ray itself may wait for a minute: a planner that does not
answer is replaced by a new one, and whatever the old one still does has no effect, for planners only think.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from cluster.version import VERSION
from controller.decide import Decisions
from controller.planner import joined
from controller.ray_actors import HEALTH, hire

Clock = Callable[[], float]

PING_EVERY_S = 1.0
SILENT_S = 4.0
"""A ping unanswered for so long: the planner's process or node is frozen. Pings have a thread of their own, which in a
busy process is served within 20 ms; Ray itself gives a silent node up after 7 s."""
STALLED_S = 3.0
"""So long past its deadline a planner that still plans is taken for stuck."""
BIRTH_S = 15.0
"""A new planner that does not answer for so long landed where nothing works; another one is tried."""
TICK_S = 0.1
PLANNING_SHARE = 0.8
"""Of what is left of a deadline, for planning itself: the rest is for plans on their way."""


class NoPlan(Exception):  # noqa: N818 - an ordinary outcome with a reason
    """This request gets no plan, and why."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason = reason


@dataclass(slots=True)
class Post:
    """One planner's post and whoever holds it now."""

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
    """The plan under way, also after nobody waits for it any more."""
    task_over_s: float = 0.0
    """When the plan under way should have been done."""


@dataclass(slots=True)
class Crew:
    """Planners and what is known of them."""

    ray: Any
    decisions: Decisions
    clock: Clock
    sleep: Callable[[float], None] = time.sleep
    posts: list[Post] = field(default_factory=list)
    restarts: int = 0
    hired: int = 0
    incarnation: str = field(default_factory=lambda: secrets.token_hex(4))
    """Of this process: a cluster may still show planners of one before it."""

    def begin(self, planners: int, within_s: float) -> None:
        """Hire so many and wait for them. Raises TimeoutError, RuntimeError when they run another version."""
        self.posts = [self._hired() for _ in range(planners)]
        over_at_s = self.clock() + within_s
        while self.up < planners:
            if self.clock() > over_at_s:
                raise TimeoutError(f"{self.up} of {planners} planners came up in {within_s:.0f} s")
            self.look_after()
            self._rest()

    @property
    def up(self) -> int:
        """Planners that answer."""
        return sum(bool(post.pid) for post in self.posts)

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(post.pid for post in self.posts if post.pid)

    def plan(self, frame: bytes | bytearray, deadline_s: float) -> bytes:
        """The plan's frame. Raises NoPlan."""
        over_at_s = self.clock() + deadline_s
        array = self.ray.put(np.frombuffer(frame, np.uint8))
        if self.decisions.shares <= 1 or len(self.posts) == 1:
            (plan,) = self._all(over_at_s, lambda _, actor, for_s: actor.plan.remote(array, for_s), self.posts[:1])
            return bytes(plan)
        (scaled,) = self._all(over_at_s, lambda _, actor, for_s: actor.scale.remote(array, for_s), self.posts[:1])
        scaled_ref, parts = self.ray.put(scaled), len(self.posts)
        packed = self._all(
            over_at_s, lambda n, actor, for_s: actor.pack.remote(array, scaled_ref, n, parts, for_s), self.posts
        )
        return joined(memoryview(scaled), [[memoryview(each) for each in mine] for mine in packed])

    def look_after(self) -> None:
        """Send and read pings; replace whoever is silent or stuck. Never waits."""
        for number, post in enumerate(self.posts):
            self._hear(post)
            why = self._useless(post)
            if why:
                self._replace(number)
            elif post.ping is None and self.clock() >= post.asked_at_s + PING_EVERY_S:
                self._send_ping(post)

    def _all(self, over_at_s: float, call: Callable[[int, Any, float], Any], posts: list[Post]) -> list[Any]:
        """What the planners of these posts answer, each to its call. One that is lost meanwhile is asked again when it
        is back, as long as there is time: planning twice does no harm."""
        answers: dict[int, Any] = {}
        asked: set[int] = set()
        while len(answers) < len(posts):
            left_s = over_at_s - self.clock()
            budget_s = PLANNING_SHARE * left_s
            if left_s <= 0:
                raise NoPlan("deadline", "the planners were not done in time")
            for n, post in enumerate(posts):
                if n not in asked and post.task is None and post.pid:
                    self._give(post, partial(call, n, post.actor, budget_s), over_at_s)
                    asked.add(n)
            if not asked and all(post.task is not None for post in posts):
                raise NoPlan("busy", "the planners are still at an earlier request")
            under_way = [post.task for n, post in enumerate(posts) if n in asked and n not in answers and post.task]
            if under_way:
                self.ray.wait(under_way, num_returns=1, timeout=min(TICK_S, left_s))
            else:
                self._rest(min(TICK_S / 4, left_s))
            for n, post in enumerate(posts):
                if n in asked and n not in answers:
                    done, value = self._taken(post)
                    if done and value is not None:
                        answers[n] = value
                    elif done or post.task is None:
                        asked.discard(n)  # its planner was lost: ask whoever holds the post next
            self.look_after()
        return [answers[n] for n in range(len(posts))]

    def _give(self, post: Post, call: Callable[[], Any], over_at_s: float) -> None:
        try:
            post.task, post.task_over_s = call(), over_at_s
        except self.ray.exceptions.PendingCallsLimitExceeded as error:
            raise NoPlan("queue_full", "the planner's queue is full") from error

    def _taken(self, post: Post) -> tuple[bool, Any]:
        """Whether the plan under way is over, and what came of it; None when the planner was lost."""
        if post.task is None or not self.ray.wait([post.task], timeout=0)[0]:
            return False, None
        task, post.task = post.task, None
        try:
            return True, self.ray.get(task, timeout=TICK_S)
        except self.ray.exceptions.RayTaskError as error:
            raise NoPlan("error", f"the planner failed: {error}") from error
        except self.ray.exceptions.RayError:
            post.pid = 0
            return True, None

    def _hear(self, post: Post) -> None:
        """Read what has come: the answer to the ping, and plans that nobody waits for any more."""
        if post.ping is not None and self.ray.wait([post.ping], timeout=0)[0]:
            ping, post.ping = post.ping, None
            try:
                pid, version = self.ray.get(ping, timeout=TICK_S)
            except self.ray.exceptions.RayError:
                post.pid = 0  # Ray brings it back by itself; the next ping tells when
            else:
                if version != VERSION:
                    raise RuntimeError(f"a planner runs Tonnage {version}, this is {VERSION}; run one image everywhere")
                self.restarts += bool(post.pid and post.pid != pid)
                post.pid, post.answered_at_s = pid, self.clock()
        if post.task is not None and self.clock() > post.task_over_s and self.ray.wait([post.task], timeout=0)[0]:
            post.task = None

    def _useless(self, post: Post) -> bool:
        now_s = self.clock()
        if not post.pid and not post.answered_at_s:
            return now_s > post.since_s + BIRTH_S
        is_silent = post.ping is not None and now_s > post.asked_at_s + SILENT_S
        is_stuck = post.task is not None and now_s > post.task_over_s + STALLED_S
        return is_silent or is_stuck or (not post.pid and now_s > post.answered_at_s + BIRTH_S)

    def _replace(self, number: int) -> None:
        """A new planner in place of a useless one, which is ended where that is possible.

        Nobody waits for its end: a frozen process ends when it thaws.
        """
        self.ray.kill(self.posts[number].actor, no_restart=True)
        self.posts[number] = self._hired()
        self.restarts += 1

    def _hired(self) -> Post:
        self.hired += 1
        return Post(hire(self.ray, self.decisions, f"planner-{self.hired} of {self.incarnation}"), self.clock())

    def _send_ping(self, post: Post) -> None:
        # Full: the calls before it are stuck. Whether it is silent shows in the ping that is under way.
        with suppress(self.ray.exceptions.PendingCallsLimitExceeded):
            post.ping = post.actor.ping.options(concurrency_group=HEALTH).remote()
        post.asked_at_s = self.clock()

    def _rest(self, for_s: float = TICK_S) -> None:
        """Wait a moment, sooner over when a ping is answered."""
        pings = [post.ping for post in self.posts if post.ping is not None]
        if pings:
            self.ray.wait(pings, num_returns=1, timeout=for_s)
        else:
            self.sleep(for_s)
