"""Clock, passed to loops and deciders as an argument, so that a test can set the time by hand."""

from collections.abc import Callable

Clock = Callable[[], float]
"""Monotonic seconds from any fixed instant: only differences count."""
