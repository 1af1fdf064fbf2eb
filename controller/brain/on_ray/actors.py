"""Ray actors, thin shells around plain classes, and their supervision: a silent, stuck or lost one is replaced.

Arguments and results are arrays. A planner answers pings in a separate thread while it plans, holds no credentials and
has no side effects: whatever happens to it, nothing is done twice, and a replaced one may still run. Nothing here waits
without a limit, because Ray itself may wait for a minute.
"""

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from cluster.clock import Clock
from cluster.frame import Buffer
from cluster.plans import Plan
from cluster.version import VERSION
from controller.brain.frames import plan_frame, plan_from_frame, proposal_over, snapshot_from_frame
from controller.deciders.decider import Proposer
from controller.deciders.decisions import Decisions
from controller.deciders.memory import Warmth
from controller.deciders.pipeline import SECTIONS, PlanRequest, planned, stage_plans


@dataclass(frozen=True, slots=True)
class Planner:
    """Planner whose state may be lost: a replacement starts cold, and learns first from the pods that are present."""

    decisions: Decisions
    clock: Clock = time.monotonic
    warmth: Warmth = field(default_factory=Warmth)
    """Planner memory; without it a planner takes longer, and its plans cost about the same."""

    def plan(self, frame: Buffer, deadline_s: float) -> bytes:
        """The frame of the planners' section of the plan, for the snapshot in `frame`."""
        return plan_frame(planned(snapshot_from_frame(frame), self._asked(deadline_s)))

    def stage(
        self, number: int, frame: Buffer, so_far: Buffer, part: int, parts: int, deadline_s: float
    ) -> list[bytes]:
        """The frames of what a stage adds to the plan so far: see `stage_plans`. number: of the stage.

        Every planner divides the cluster itself: that costs less than sending each planner its share.
        """
        asked, snapshot = self._asked(deadline_s), snapshot_from_frame(frame)
        plans = stage_plans(SECTIONS.stages[number], snapshot, plan_from_frame(so_far), asked, part=part, parts=parts)
        return [plan_frame(plan) for plan in plans]

    def _asked(self, deadline_s: float) -> PlanRequest:
        return PlanRequest(self.decisions, deadline_s, self.clock, self.warmth)


def nothing_planned() -> bytes:
    """The frame of a plan before its first stage."""
    return plan_frame(Plan())


def joined(so_far: Buffer, parts: Iterable[Sequence[Buffer]]) -> bytes:
    """The plan so far with a stage's plans, joined in the order in which a single planner would have decided."""
    plan, by_planner = plan_from_frame(so_far), list(parts)
    for turn in range(max(map(len, by_planner), default=0)):
        for mine in by_planner:
            if turn < len(mine):
                plan = plan.joined(plan_from_frame(mine[turn]))
    return plan_frame(plan)


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


@dataclass(frozen=True, slots=True)
class Hiring:
    """What an actor is started as."""

    kind: type
    given: Decisions | Proposer
    """Argument of its constructor."""
    name: str
    """For people who look at the cluster; with a number, it is never used twice."""
    cpus: float = 1.0
    """Processors that it books, so that a planner never runs on a head that offers none."""


def _array(frame: bytes) -> Any:
    return np.frombuffer(frame, np.uint8)


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


class CallFailed(Exception):  # noqa: N818 - an ordinary outcome with a reason
    """Error: the call raised an exception in the actor."""


class ActorLost(Exception):  # noqa: N818 - an ordinary outcome
    """Error: the actor was lost during the call."""


@dataclass(slots=True)
class ActorPost:
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
class ActorPosts:
    """Posts of one kind of actor, numbered."""

    ray: Any
    clock: Clock
    hirings: Sequence[Hiring] = ()
    """What each post is filled with."""
    incarnation: str = field(default_factory=partial(secrets.token_hex, 4))
    """Random name of this process: a cluster may still list actors of an earlier one."""
    each: list[ActorPost] = field(default_factory=list)
    restarts: int = 0
    """Restarted and replaced actors, whether by Ray or by this class."""
    _hired: int = 0

    def fill(self, hirings: Sequence[Hiring]) -> None:
        """Starts an actor for each post, without waiting for them. They end with this process."""
        self.hirings = hirings
        self.each = [self._post(number) for number in range(len(hirings))]

    @property
    def up(self) -> int:
        """Number of actors that answer pings."""
        return sum(bool(post.pid) for post in self.each)

    def look_after(self) -> list[tuple[int, Useless]]:
        """Sends and reads pings, and replaces useless actors. Returns (post, reason) of each. Never waits."""
        replaced: list[tuple[int, Useless]] = []
        for number, post in enumerate(self.each):
            self._receive(post)
            if why := self._useless(post):
                # Killed where that is possible. Nothing waits for its end: a frozen process ends when it thaws.
                self.ray.kill(post.actor, no_restart=True)
                self.each[number] = self._post(number)
                self.restarts += 1
                replaced.append((number, why))
            elif post.ping is None and self.clock() >= post.asked_at_s + (
                PING_EVERY_S if post.pid else PING_LOST_EVERY_S
            ):
                # Full: the calls before it are stuck. Whether it is silent shows in the ping that is under way.
                with suppress(self.ray.exceptions.PendingCallsLimitExceeded):
                    post.ping = post.actor.ping.options(concurrency_group=HEALTH).remote()
                post.asked_at_s = self.clock()
        return replaced

    def give(self, post: ActorPost, over_at_s: float, method: str, *given: Any) -> None:
        """Calls a method of the actor. Raises QueueFull."""
        try:
            post.task, post.task_over_s = getattr(post.actor, method).remote(*given), over_at_s
        except self.ray.exceptions.PendingCallsLimitExceeded as error:
            raise QueueFull from error

    def taken(self, post: ActorPost) -> Any:
        """The result of the call under way, which is cleared; None while it runs. Raises CallFailed, ActorLost."""
        if not self.is_done(post):
            return None
        task, post.task = post.task, None
        try:
            return self.ray.get(task, timeout=TICK_S)
        except self.ray.exceptions.RayTaskError as error:
            raise CallFailed(str(error)) from error
        except self.ray.exceptions.RayError as error:
            post.pid = 0
            raise ActorLost from error

    def is_done(self, post: ActorPost) -> bool:
        return post.task is not None and bool(self.ray.wait([post.task], timeout=0)[0])

    def _receive(self, post: ActorPost) -> None:
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

    def _useless(self, post: ActorPost) -> Useless | None:
        now_s = self.clock()
        if not post.pid and not post.answered_at_s:
            return "unborn" if now_s > post.since_s + BIRTH_S else None
        if post.ping is not None and now_s > post.asked_at_s + SILENT_S:
            return "silent"
        if post.is_overdue(now_s - STALLED_S):
            return "stuck"
        return "lost" if not post.pid and now_s > post.answered_at_s + BIRTH_S else None

    def _post(self, number: int) -> ActorPost:
        """A post whose actor is being started."""
        self._hired += 1
        hiring = self.hirings[number]
        actor = (
            self.ray.remote(max_concurrency=1, concurrency_groups={HEALTH: 1})(hiring.kind)
            .options(
                name=f"{hiring.name}-{self._hired} of {self.incarnation}",
                num_cpus=hiring.cpus,
                max_restarts=-1,
                max_task_retries=0,
                max_pending_calls=PENDING_CALLS,
                scheduling_strategy="SPREAD",
            )
            .remote(hiring.given)
        )
        return ActorPost(actor, self.clock())
