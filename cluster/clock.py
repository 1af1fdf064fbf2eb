"""Clock: the time as loops and deciders are given it, so that a test can set it by hand."""

from collections.abc import Callable

Clock = Callable[[], float]
"""Monotonic seconds from any fixed instant: only differences count."""
