"""Readiness of a target's pods: how many serve, how long the others are awaited, and how long starts took."""

import math
from collections import deque
from collections.abc import Iterable

from cluster.autoscaling import MOST_ORDERED, Replicas
from controller.api.notation import instant
from controller.api.structs import Meta, Slim

MOST_STARTS = 200
"""Observed starts that are remembered."""


class _Condition(Slim, frozen=True):
    type: str
    status: str
    last_transition_time: str | None = None


class _ContainerStatus(Slim, frozen=True):
    restart_count: int = 0


class _PodMeta(Meta, frozen=True):
    creation_timestamp: str | None = None


class _PodStatus(Slim, frozen=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()


class TargetPod(Slim, frozen=True):
    """Pod of a target, as far as its readiness is concerned.

    It is read when needed, not watched: labels and conditions of all pods of a fleet would take more memory than all
    that planning knows of them.
    """

    metadata: _PodMeta
    status: _PodStatus = _PodStatus()

    @property
    def counts(self) -> bool:
        """Whether it is a replica: not ended, and not being stopped."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in ("Succeeded", "Failed")

    @property
    def created_at_s(self) -> float:
        return instant(self.metadata.creation_timestamp)

    @property
    def ready_at_s(self) -> float | None:
        """When it became ready; None: it is not."""
        ready = next((each for each in self.status.conditions if each.type == "Ready"), None)
        return instant(ready.last_transition_time) if ready is not None and ready.status == "True" else None

    @property
    def was_restarted(self) -> bool:
        """Whether a container was restarted: its readiness then says nothing about the start of a replica."""
        return any(each.restart_count for each in self.status.container_statuses)


class Starts:
    """Replicas of one target over time: what is awaited, and the starts that finished."""

    def __init__(self, since_s: float, learned: Iterable[float] = ()) -> None:
        """since_s: begin of the observation, seconds since the epoch. learned: earlier lead times, oldest first."""
        self._since_s = since_s
        self._known: set[str] = set()
        self._has_seen = False
        self.changed_at_s = -math.inf
        """Last change among the pods that are ready, seconds since the epoch."""
        self._missing_since_s: float | None = None
        self.took_s = deque(learned, maxlen=MOST_STARTS)

    def see(self, wanted: int, pods: Iterable[TargetPod], at_s: float) -> Replicas:
        """Replicas by the pods that exist now."""
        there = [pod for pod in pods if pod.counts]
        self._note_changes(there, at_s)
        self._learn(there)
        ready = sum(pod.ready_at_s is not None for pod in there)
        waiting = sorted(pod.created_at_s for pod in there if pod.ready_at_s is None)
        missing = max(0, wanted - len(there))
        if not missing:
            self._missing_since_s = None
        elif self._missing_since_s is None:
            self._missing_since_s = at_s
        ordered = sorted([*waiting, *[self._missing_since_s or at_s] * min(missing, MOST_ORDERED)])
        ready = min(ready, wanted)
        # More pods than wanted are on their way out: those that wait are not awaited.
        return Replicas(wanted, ready, tuple(ordered[: min(wanted - ready, MOST_ORDERED)]), at_s)

    def _note_changes(self, pods: Iterable[TargetPod], at_s: float) -> None:
        ready = {pod.metadata.uid: pod.ready_at_s for pod in pods if pod.ready_at_s is not None}
        if not self._has_seen:
            self.changed_at_s = max(ready.values(), default=at_s)
        elif set(ready) != self._known:
            self.changed_at_s = at_s
        self._has_seen = True

    def _learn(self, pods: Iterable[TargetPod]) -> None:
        """Remembers starts that finished since the observation began; earlier ones are in the status."""
        seen = set()
        for pod in sorted(pods, key=lambda each: each.ready_at_s or 0.0):
            ready_at_s = pod.ready_at_s
            if ready_at_s is None:
                continue
            seen.add(pod.metadata.uid)
            is_new = pod.metadata.uid not in self._known and ready_at_s >= self._since_s
            if is_new and not pod.was_restarted:
                self.took_s.append(max(0.0, ready_at_s - pod.created_at_s))
        self._known = seen
