"""Canaries: pods of a namespace of their own, made at a steady rate, and how long each waits for a node."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Thread

from tests.controlplane.faults.workload import PLACEMENT_MODES, placed
from tests.controlplane.plain_api import PlainApi
from tests.until import comes_true

EVERY_S = 0.25
"""Time between two canaries, seconds."""
GRACE_S = 30.0
"""Time after the last canary in which all must have a node, seconds."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds from each canary's creation until the API server showed its node, ascending."""

    waited_s: tuple[float, ...] = ()
    unplaced: tuple[str, ...] = ()
    """Canaries without a node at the end."""

    def share_s(self, share: float) -> float:
        """Wait that this share of the canaries does not exceed (nearest rank); one without a node waits for ever."""
        every = (*self.waited_s, *(math.inf for _ in self.unplaced))
        return round(every[math.ceil(share * len(every)) - 1], 2) if every else math.nan


@dataclass
class Canaries:
    """Pods of one GPU, in the placement modes by turns. Each goes once it has a node."""

    api: PlainApi
    namespace: str
    placed_at_s: Callable[[str], float | None]
    """Instant at which a pod was first seen with a node, monotonic."""
    made_s: dict[str, float] = field(default_factory=dict)
    """Instant before each was created, by `namespace/name`."""
    _over: Event = field(default_factory=Event)

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @contextmanager
    def singing(self) -> Iterator[None]:
        thread = Thread(target=self._sing, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(60)

    def _sing(self) -> None:
        modes, there = list(PLACEMENT_MODES), set[str]()
        for number in count():
            if self._over.wait(EVERY_S):
                break
            self._create(f"canary-{number}", modes[number % len(modes)], there)
            self._remove_placed(there)
        comes_true(lambda: not self._remove_placed(there), GRACE_S)

    def _create(self, name: str, mode: str, there: set[str]) -> None:
        now_s = time.monotonic()
        answer = self.api.send("POST", self._path, placed(name, self.namespace, mode))
        assert answer.is_ok, answer.message
        self.made_s[f"{self.namespace}/{name}"] = now_s
        there.add(name)

    def _remove_placed(self, there: set[str]) -> set[str]:
        """Deletes those that have a node; the others."""
        for name in sorted(there):
            if self.placed_at_s(f"{self.namespace}/{name}") is not None:
                self.api.send("DELETE", f"{self._path}/{name}", {"gracePeriodSeconds": 0})
                there.discard(name)
        return there

    def waits(self) -> Waits:
        found = {name: self.placed_at_s(name) for name in self.made_s}
        waited = (at_s - self.made_s[name] for name, at_s in found.items() if at_s is not None)
        return Waits(tuple(sorted(waited)), tuple(name for name, at_s in found.items() if at_s is None))
