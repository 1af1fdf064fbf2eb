"""Memory of stops: pods whose stop was refused, and how many were stopped for each unit that waits.

A plan that meets the same cluster decides the same again. What was refused is tried again after a pause, so that the
plan chooses other pods meanwhile; and a unit for which many pods were stopped within an hour, in vain, stops no more.
Instants are of one monotonic clock.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.clock import Clock
from cluster.snapshot import Snapshot
from controller.kube.request import KubeWriteError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0
"""Pause after a first refusal of a pod's stop, and the longest; each further one doubles it. Chosen: a budget allows
again once a replacement is ready, which takes from seconds to minutes."""
HOUR_S = 3600.0
REMEMBERED = 10_000
"""Number of pods, and of units, that are remembered, 5 MB."""


@dataclass(frozen=True, slots=True)
class _RefusedStop:
    uid: str
    words: str
    pause_s: float
    until_s: float


@dataclass(slots=True)
class StopMemory:
    clock: Clock
    most_per_seat: int
    """Number of pods that may be stopped in an hour for one seat: a pod that waits, or a member of a gang."""
    _refused: OrderedDict[str, _RefusedStop] = field(default_factory=OrderedDict)
    """The last refusal of each pod, by `namespace/name`, in order of time."""
    _stopped: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)
    """When pods were stopped for a unit (`Pod/…`, `Gang/…`), the oldest first."""

    def note_refused(self, pod: str, uid: str, error: Exception) -> None:
        """Notes that a pod's stop was refused, or would have been."""
        if not isinstance(error, KubeWriteError) or not 400 <= error.refusal.status < 600:
            return
        last, now_s = self._refused.get(pod), self.clock()
        goes_on = last is not None and last.uid == uid and now_s < last.until_s + LONGEST_PAUSE_S
        pause_s = min(LONGEST_PAUSE_S, 2 * last.pause_s) if last is not None and goes_on else FIRST_PAUSE_S
        self._refused[pod] = _RefusedStop(uid, words_of(error), pause_s, now_s + pause_s)
        self._refused.move_to_end(pod)
        if len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)

    def note_stopped(self, beneficiary: str) -> None:
        """Notes that a pod was stopped for this unit."""
        self._stopped.setdefault(beneficiary, deque()).append(self.clock())
        self._stopped.move_to_end(beneficiary)
        if len(self._stopped) > REMEMBERED:
            self._stopped.popitem(last=False)

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot in which pods whose stop was refused lately stay, and units that stopped many stop no more."""
        refused = {pod: each.words for pod, each in self._refused.items() if self.clock() < each.until_s}
        rows = {row: pod for pod in refused if (row := snapshot.pods.names.row(pod)) is not None}
        exhausted = tuple(self._exhausted(snapshot))
        if not rows and not exhausted:
            return snapshot
        pods = snapshot.pods
        settled = np.zeros(len(pods), dtype=np.bool_) if pods.settled is None else pods.settled.copy()
        settled[list(rows)] = True
        settled.setflags(write=False)
        return replace(
            snapshot,
            pods=replace(pods, settled=settled) if rows else pods,
            refused_stops={pod: refused[pod] for pod in rows.values()},
            out_of_stops=exhausted,
        )

    def _exhausted(self, snapshot: Snapshot) -> Iterable[str]:
        now_s = self.clock()
        if not self._stopped:
            return
        seats = {f"Gang/{gang.name}": gang.min_members for gang in snapshot.gangs}
        for unit, instants in tuple(self._stopped.items()):
            while instants and instants[0] <= now_s - HOUR_S:
                instants.popleft()
            if not instants:
                del self._stopped[unit]
            elif len(instants) >= self.most_per_seat * max(1, seats.get(unit, 1)):
                yield unit


def words_of(error: KubeWriteError) -> str:
    """The server's reason, which names the budget."""
    causes = [cause.message for cause in error.refusal.causes if cause.reason == "DisruptionBudget" and cause.message]
    return causes[0] if causes else error.refusal.words
