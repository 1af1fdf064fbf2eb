"""Memory of stops: pods whose stop was refused, and how many were stopped for each unit that waits.

A plan that meets the same cluster decides the same again. What was refused is tried again after a pause, so that the
plan chooses other pods meanwhile; and a unit for which many pods were stopped within an hour, in vain, stops no more.
Instants are of one monotonic clock.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, MutableMapping
from dataclasses import dataclass, field, replace

from cluster.clock import Clock
from cluster.snapshot import Snapshot
from controller.kube.request import KubeWriteError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0
"""Pause after a first refusal of a pod's stop, and the longest; each further one doubles it. Chosen: a budget allows
again once a replacement is ready, which takes from seconds to minutes."""
HOUR_S = 3600.0
REMEMBERED = 10_000
"""Number of objects whose refusals are remembered, and of units, 5 MB each."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    of: Hashable
    words: str
    pause_s: float
    until_s: float


@dataclass(slots=True)
class Pauses:
    """The last refusal of each of many objects, after which it is not tried again for a while, each time twice as long.

    Instants are of one monotonic clock.
    """

    first_s: float
    longest_s: float
    _by_name: OrderedDict[str, _Refusal] = field(default_factory=OrderedDict)
    """In order of time."""

    def note(self, name: str, of: Hashable, words: str, now_s: float) -> None:
        """Notes a refusal. of: what must be the same of an object for its pauses to go on, such as its uid."""
        last = self._by_name.get(name)
        goes_on = last is not None and last.of == of and now_s < last.until_s + self.longest_s
        pause_s = min(self.longest_s, 2 * last.pause_s) if last is not None and goes_on else self.first_s
        self._by_name[name] = _Refusal(of, words, pause_s, now_s + pause_s)
        self._by_name.move_to_end(name)
        if len(self._by_name) > REMEMBERED:
            self._by_name.popitem(last=False)

    def present(self, now_s: float) -> dict[str, str]:
        """The words of the refusals whose pauses last, by name."""
        return {name: each.words for name, each in self._by_name.items() if now_s < each.until_s}

    def words_for(self, name: str, of: Hashable, now_s: float) -> str:
        """The words of a refusal whose pause lasts; empty: it may be tried."""
        last = self._by_name.get(name)
        return last.words if last is not None and last.of == of and now_s < last.until_s else ""


@dataclass(slots=True)
class StopMemory:
    clock: Clock
    most_per_seat: int
    """Number of pods that may be stopped in an hour for one seat: a pod that waits, or a member of a gang."""
    is_empty: bool = True
    """Whether nothing was ever noted."""
    _refused: Pauses = field(default_factory=lambda: Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    """By pod, `namespace/name`."""
    _stopped: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)
    """When pods were stopped for a unit (`Pod/…`, `Gang/…`), the oldest first."""
    _moved: dict[str, deque[float]] = field(default_factory=dict)
    """When pods were moved, by namespace and by service, likewise."""

    def note_refused(self, pod: str, uid: str, error: Exception) -> None:
        """Notes that a pod's stop was refused, or would have been."""
        if isinstance(error, KubeWriteError) and 400 <= error.refusal.status < 600:
            self.is_empty = False
            self._refused.note(pod, uid, words_of(error), self.clock())

    def note_stopped(self, beneficiary: str) -> None:
        """Notes that a pod was stopped for this unit."""
        self.is_empty = False
        self._stopped.setdefault(beneficiary, deque()).append(self.clock())
        self._stopped.move_to_end(beneficiary)
        if len(self._stopped) > REMEMBERED:
            self._stopped.popitem(last=False)

    def note_moved(self, pod: str, service: str) -> None:
        """Notes that a pod of this service (empty: of none) was moved."""
        self.is_empty = False
        for group in filter(None, (pod.partition("/")[0], service)):
            self._moved.setdefault(group, deque()).append(self.clock())

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot in which pods whose stop was refused lately stay, and units that stopped many stop no more."""
        refused = self._refused.present(self.clock())
        rows = {row: pod for pod in refused if (row := snapshot.pods.names.row(pod)) is not None}
        forget(self._moved, self.clock() - HOUR_S)
        forget(self._stopped, self.clock() - HOUR_S)
        moved = {group: len(instants) for group, instants in self._moved.items()}
        seats = {f"Gang/{gang.name}": gang.min_members for gang in snapshot.gangs} if self._stopped else {}
        exhausted = tuple(
            unit
            for unit, instants in self._stopped.items()
            if len(instants) >= self.most_per_seat * max(1, seats.get(unit, 1))
        )
        if not rows and not exhausted:
            return replace(snapshot, moved=moved) if moved else snapshot
        return replace(
            snapshot,
            pods=snapshot.pods.marked("settled", list(rows)) if rows else snapshot.pods,
            refused_stops={pod: refused[pod] for pod in rows.values()},
            out_of_stops=exhausted,
            moved=moved,
        )


def forget(by_name: MutableMapping[str, deque[float]], before_s: float) -> None:
    """Drops instants up to this one, the oldest of which are first, and names without any."""
    for name, instants in tuple(by_name.items()):
        while instants and instants[0] <= before_s:
            instants.popleft()
        if not instants:
            del by_name[name]


def words_of(error: KubeWriteError) -> str:
    """The server's reason, which names the budget."""
    causes = [cause.message for cause in error.refusal.causes if cause.reason == "DisruptionBudget" and cause.message]
    return causes[0] if causes else error.refusal.words
