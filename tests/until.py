"""Waiting for what another thread, process or task brings about: a claim is checked again and again until it holds."""

import asyncio
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")

WITHIN_S = 20.0
"""Chosen for threads of the test's own process on a busy machine; processes and servers need more."""
PAUSE_S = 0.05
"""Between two checks: the others' chance to work."""


def until(claim: Callable[[], T], what: str, within_s: float = WITHIN_S, pause_s: float = PAUSE_S) -> T:
    """What the claim returns once that is true; the test fails with `what` when it is not within the time."""
    found = comes_true(claim, within_s, pause_s)
    assert found, f"not within {within_s:g} s: {what}"
    return found


def comes_true(claim: Callable[[], T], within_s: float, pause_s: float = PAUSE_S) -> T:
    """What the claim returns once that is true, or what it returned last when the time is over."""
    over_at_s, pause = time.monotonic() + within_s, Event()
    while not (found := claim()) and time.monotonic() < over_at_s:
        pause.wait(pause_s)
    return found


async def until_async(
    claim: Callable[[], T], what: str = "what was awaited", within_s: float = WITHIN_S, pause_s: float = PAUSE_S
) -> T:
    """`until` for a claim about tasks of the running loop, which go on during the pauses."""
    over_at_s = time.monotonic() + within_s
    while not (found := claim()):
        assert time.monotonic() < over_at_s, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(pause_s)
    return found
