"""Keeping a cache true: list, watch, and go on after whatever breaks."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Never

import structlog

from controller.kube.cache import Cache, Item, is_version_lost
from controller.kube.connection import Transport
from controller.kube.errors import KubeReadError, Refusal

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How long a watch lasts, and how long to wait after a failure."""

    watch_for_s: tuple[float, float] = (300.0, 600.0)
    """A watch is asked for so long, by chance between the two, so that watches do not all end at once. client-go's."""
    idle_s: float = 150.0
    """30 to 600. A watch over which nothing came for so long is dead: the server sends a bookmark every minute, so two
    were missed."""
    first_wait_s: float = 0.8
    """After the first failure; doubles with each. client-go's."""
    longest_wait_s: float = 10.0
    """1 to 60. Chosen: a third of client-go's, because nothing is planned in the meantime."""
    calm_after_s: float = 60.0
    """After so long without a failure the next one counts as the first."""
    short_watch_s: float = 1.0
    """A watch that ends within this and said nothing counts as a failure, so that a broken proxy is not hammered."""

    def wait_s(self, failures: int, refusal: Refusal, chance: Random) -> float:
        """How long to wait after the n-th failure in a row, 1 the first.

        A version that was lost once is asked for anew at once; a server that names a time is given it.
        """
        if failures == 1 and is_version_lost(refusal):
            return 0.0
        longest = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(failures - 1, 30))
        return max(refusal.retry_after_s or 0.0, longest * chance.uniform(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a reflector has from outside, so that tests can give it something else."""

    clock: Callable[[], float]
    """Seconds since the epoch."""
    pause: Callable[[float], Awaitable[None]]
    """Waits for so many seconds: `asyncio.sleep`."""
    chance: Random


async def reflect(cache: Cache[Item], transport: Transport, rhythm: Rhythm, around: Surroundings) -> Never:
    """Keep the cache true until cancelled. Whatever cannot be read is logged, counted and tried again."""
    failures, failed_at_s = 0, 0.0
    while True:
        events = cache.events
        try:
            if cache.wants_list:
                await list_all(cache, transport, around.clock)
            await watch_once(cache, transport, rhythm, around)
        except KubeReadError as error:
            now_s = around.clock()
            # A watch that told something worked: a line that is cut again and again must not make the picture old.
            has_worked = cache.events != events and not is_version_lost(error.refusal)
            is_first = has_worked or now_s - failed_at_s > rhythm.calm_after_s
            failures = 1 if is_first else failures + 1
            failed_at_s = now_s
            cache.fail(error.refusal)
            wait_s = rhythm.wait_s(failures, error.refusal, around.chance)
            log.warning(
                "watch broken", part=cache.resource.part, error=str(error), failures=failures, wait_s=round(wait_s, 2)
            )
            await around.pause(wait_s)


async def list_all(cache: Cache[Item], transport: Transport, clock: Callable[[], float]) -> None:
    """Take the whole list, page by page; the cache changes with the last one. Raises KubeReadError."""
    continue_, is_first = "", True
    while is_first or continue_:
        body = await transport.read(cache.resource.path, cache.list_query(continue_))
        continue_ = cache.take_page(body, clock(), is_first=is_first)
        is_first = False
    log.info("listed", part=cache.resource.part, objects=len(cache))


async def watch_once(cache: Cache[Item], transport: Transport, rhythm: Rhythm, around: Surroundings) -> None:
    """Follow one watch to its end. Raises KubeReadError when it breaks, or ends before it began."""
    start_s, events = around.clock(), cache.events
    query = cache.watch_query(around.chance.uniform(*rhythm.watch_for_s))
    async with aclosing(transport.watch(cache.resource.path, query, idle_s=rhythm.idle_s)) as lines:
        async for line in lines:
            cache.take_line(line, around.clock())
    if cache.events == events and around.clock() - start_s < rhythm.short_watch_s:
        words = "the watch ended at once, without a word"
        raise KubeReadError(f"watching {cache.resource.path}", Refusal(0, "ShortWatch", words))
