"""Surroundings of a control loop, of which a test gives what its loop uses."""

from contextlib import ExitStack
from typing import Any

from controller.loops.loop import CycleTrigger, LoopContext


def loop_context(**given: Any) -> LoopContext:
    """A context with these parts; the others are missing."""
    parts = ("thread", "connection", "applier", "leadership", "caches", "meter", "clocks", "background")
    defaults = {"trigger": CycleTrigger(), "identity": "me", "stack": ExitStack()}
    return LoopContext(**{**dict.fromkeys(parts), **defaults, **given})
