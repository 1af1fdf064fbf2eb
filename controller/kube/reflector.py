"""Reflector, which keeps a cache current: it lists, watches, and recovers from every failure."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Never

import structlog

from controller.kube.api_server import Transport
from controller.kube.cache import Cache, Item
from controller.kube.errors import ABSENT, KubeReadError, Refusal, is_version_lost

log = structlog.get_logger(__name__)

STARTING = 6
"""Refusals in a row after which an optional kind that was read counts as absent: about 20 s of pauses."""


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """Durations of watches, and of the back-off after a failure."""

    watch_for_s: tuple[float, float] = (300.0, 600.0)
    """Range of the requested duration of a watch; it is random, so that watches do not all end at once. As
    client-go's."""
    idle_s: float = 150.0
    """Time without a line after which a watch is considered dead, 30 to 600. The server sends a bookmark every minute,
    so two were missed."""
    first_wait_s: float = 0.8
    """Wait after the first failure; doubles with each further one. As client-go's."""
    longest_wait_s: float = 10.0
    """Longest wait, 1 to 60. Chosen: a third of client-go's, because nothing is planned in the meantime."""
    longest_asked_s: float = 60.0
    """Longest wait that a server may ask for, 10 to 120. Chosen: a third of the age from which nothing is planned."""
    calm_after_s: float = 60.0
    """Time without a failure after which the next failure counts as the first."""
    absent_s: float = 60.0
    """Longest wait until a kind that is not served, or may not be listed, is tried again. Chosen: people install a kind
    minutes before they use it."""
    short_watch_s: float = 1.0
    """A watch that ends within this time without any event counts as a failure, so that a broken proxy is not
    overloaded."""

    def wait_s(self, failures: int, refusal: Refusal, chance: Random) -> float:
        """Wait after the n-th failure in a row; the first is 1.

        After a first lost resourceVersion there is no wait. A Retry-After of the server is honoured up to
        `longest_asked_s`: it may come from a proxy in front of it.
        """
        if failures == 1 and is_version_lost(refusal):
            return 0.0
        longest = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(failures - 1, 30))
        asked_s = min(self.longest_asked_s, refusal.retry_after_s or 0.0)
        return max(asked_s, longest * chance.uniform(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Clock, sleep and random numbers of a reflector, which tests replace."""

    clock: Callable[[], float]
    """Current time, seconds since the epoch."""
    pause: Callable[[float], Awaitable[None]]
    """Waits for a number of seconds: `asyncio.sleep`."""
    chance: Random


async def reflect(cache: Cache[Item], transport: Transport, times: WatchTimes, around: Surroundings) -> Never:
    """Keep the cache current until cancelled. Every failed read is logged, counted and retried."""
    failures, failed_at_s = 0, 0.0
    while True:
        events = cache.events
        try:
            if cache.wants_list:
                await list_all(cache, transport, around.clock)
            await watch_once(cache, transport, times, around)
        except KubeReadError as error:
            is_read = bool(cache.lists) and not cache.is_absent
            # A server that starts refuses for a moment what it is about to serve.
            if error.refusal.status in ABSENT and cache.resource.is_optional and not (is_read and failures < STARTING):
                await _left_out(cache, error, times, around)
                continue
            now_s = around.clock()
            # A watch that delivered an event has worked: back-off for a connection that is cut again and again must not
            # make the cache stale.
            has_worked = cache.events != events and not is_version_lost(error.refusal)
            is_first = has_worked or now_s - failed_at_s > times.calm_after_s
            failures = 1 if is_first else failures + 1
            failed_at_s = now_s
            cache.fail(error.refusal)
            wait_s = times.wait_s(failures, error.refusal, around.chance)
            log.warning(
                "watch broken", part=cache.resource.part, error=str(error), failures=failures, wait_s=round(wait_s, 2)
            )
            await around.pause(wait_s)


async def _left_out(cache: Cache[Item], error: KubeReadError, times: WatchTimes, around: Surroundings) -> None:
    """Go on without an optional resource, and wait until it is tried again."""
    was_absent = cache.is_absent
    if cache.leave_out(error.refusal):
        return
    if not was_absent:
        log.info("not read", part=cache.resource.part, why=error.refusal.words)
    await around.pause(times.absent_s * around.chance.uniform(0.5, 1.0))


async def list_all(cache: Cache[Item], transport: Transport, clock: Callable[[], float]) -> None:
    """List the resource page by page; the cache changes with the last page. Raises KubeReadError."""
    continue_, is_first = "", True
    while is_first or continue_:
        body = await transport.read(cache.path, cache.list_query(continue_))
        continue_ = cache.take_page(body, clock(), is_first=is_first)
        is_first = False
    log.info("listed", part=cache.resource.part, objects=len(cache))


async def watch_once(cache: Cache[Item], transport: Transport, times: WatchTimes, around: Surroundings) -> None:
    """Follow one watch to its end. Raises KubeReadError when it breaks, or ends at once without an event."""
    start_s, events = around.clock(), cache.events
    query = cache.watch_query(around.chance.uniform(*times.watch_for_s))
    async with aclosing(transport.watch(cache.path, query, idle_s=times.idle_s)) as lines:
        async for line in lines:
            cache.take_line(line, around.clock())
    if cache.events == events and around.clock() - start_s < times.short_watch_s:
        words = "the watch ended at once, without an event"
        raise KubeReadError(f"watching {cache.path}", Refusal(0, "ShortWatch", words))
