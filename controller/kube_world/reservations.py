"""What counts as done although the watch does not show it: writes in flight, and pods that kube-scheduler is to bind.

So no device is planned twice, no pod is stopped twice, and no decision that holds seats is made anew.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cluster.actions import Action, Bind, Evict, HoldSeats, Move, Start
from cluster.clock import Clock
from cluster.held_seats import text_of
from controller.kube.cluster_view import SeenPod

ASSUMED_FOR_S = 30.0
"""Time without confirmation after which a bind counts as failed, seconds. Watches lag by milliseconds; this outlasts a
restart of the API server."""
REMEMBERED = 50_000
"""Number of placed pods that are remembered, 5 MB."""


@dataclass(frozen=True, slots=True)
class _Assumption:
    action: Action
    uid: str
    """UID of the pod, which distinguishes it from another pod of the same name."""
    until_s: float


class AssumedWrites:
    """Starts, stops and held seats that were sent, but not yet shown by the watch: of each pod the last, and its stop.

    A pod that is stopped before its start is shown keeps its devices until it is gone. Instants are of one clock.
    """

    def __init__(self) -> None:
        self._by_pod: dict[tuple[str, bool], _Assumption] = {}

    def __len__(self) -> int:
        return len(self._by_pod)

    def add(self, pod: str, action: Action, uid: str, now_s: float) -> None:
        """Add a start or seats before their request is sent, as a lost answer must not free them; a stop once it is
        accepted.
        """
        self._by_pod[pod, isinstance(action, Evict | Move)] = _Assumption(action, uid, now_s + ASSUMED_FOR_S)

    def clear(self) -> None:
        self._by_pod = {}

    def drop(self, pods: Iterable[str]) -> None:
        """Remove writes that certainly failed or were undone."""
        for pod in pods:
            self._by_pod.pop((pod, False), None)
            self._by_pod.pop((pod, True), None)

    def unconfirmed(self, seen: Callable[[str], SeenPod | None], now_s: float) -> tuple[Action, ...]:
        """Writes that the watch has not shown; confirmed and expired ones are removed."""
        kept: dict[tuple[str, bool], _Assumption] = {}
        for key, each in self._by_pod.items():
            pod = seen(key[0]) if now_s < each.until_s else None
            if pod and pod.uid == each.uid and not (pod.is_ending or _shows(pod, each.action)):
                kept[key] = each
        self._by_pod = kept
        return tuple(each.action for each in kept.values())


def _shows(pod: SeenPod, action: Action) -> bool:
    if isinstance(action, HoldSeats):
        return bool(pod.node) or pod.held_seats == text_of(action.held)
    return isinstance(action, Start) and bool(pod.node or pod.chosen_node)


@dataclass(slots=True)
class Reservations:
    """Devices of pods whose gate was removed and that kube-scheduler has not bound, as far as they are believed.

    Such a pod holds its devices by annotations alone. Where the API server lets only Tonnage write them
    (marks.yaml of the chart), they are believed. Elsewhere anybody can write them, so a leader believes what it wrote
    itself, and for a short time what it finds when it takes the Lease. Instants are of one monotonic clock.
    """

    clock: Clock = lambda: 0.0
    inherited_for_s: float = math.inf
    """Seconds from taking the Lease in which all annotations count: binding takes milliseconds."""
    is_guarded: bool = True
    """Whether the API server lets only Tonnage write its annotations."""
    _led_since_s: float = -math.inf
    _made: dict[str, Start] = field(default_factory=dict)
    """Binds that this leader sent, by the pod's uid, for pods that still wait."""
    _sent: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """The last pods that this leader placed, by uid."""

    def lead(self, *, is_guarded: bool) -> None:
        """Begins a lead, which has reserved nothing yet."""
        self.is_guarded, self._led_since_s = is_guarded, self.clock()
        self._made, self._sent = {}, OrderedDict()

    def add(self, uid: str, bind: Start) -> None:
        self._made[uid] = bind
        self._sent[uid] = None
        if len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)

    def hold(self, uid: str) -> None:
        """Notes that this leader holds seats for a pod."""
        self._sent[f"held {uid}"] = None

    def holds(self, uid: str) -> bool:
        """Whether the seats are held that stand on this pod, as far as it is believed."""
        return self.is_guarded or self._is_inherited or f"held {uid}" in self._sent

    @property
    def _is_inherited(self) -> bool:
        return self.clock() < self._led_since_s + self.inherited_for_s

    def is_placed_here(self, uid: str) -> bool:
        """Whether Tonnage placed this pod where its annotations say, as far as they are believed."""
        return self.is_guarded or uid in self._sent

    def retain(self, uids: frozenset[str]) -> None:
        """Forgets all but these, which still wait."""
        if len(self._made) > 2 * len(uids) + 1000:
            self._made = {uid: bind for uid, bind in self._made.items() if uid in uids}

    def held_by(self, pod: SeenPod) -> Start | None:
        """Devices that a released pod without a node holds; None where nothing was reserved, or none is believed."""
        if not pod.chosen_node:
            return None
        own = self._made.get(pod.uid)
        if own is not None:
            return own
        return Bind(pod.name, pod.chosen_node, pod.devices) if self.is_guarded or self._is_inherited else None
