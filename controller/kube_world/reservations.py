"""Assumed binds: sent, but not yet shown by the watch. They count as done, so that no device is planned twice."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cluster.actions import Bind
from controller.kube.cluster_view import SeenPod

ASSUMED_FOR_S = 30.0
"""Time without confirmation after which a bind counts as failed, seconds. Watches lag by milliseconds; this outlasts a
restart of the API server."""


@dataclass(frozen=True, slots=True)
class Assumption:
    bind: Bind
    uid: str
    """UID of the pod, which distinguishes it from another pod of the same name."""
    until_s: float


class Assumed:
    """Unconfirmed binds, by pod. Instants are of one monotonic clock."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Assumption] = {}

    def __len__(self) -> int:
        return len(self._by_pod)

    def add(self, bind: Bind, uid: str, now_s: float) -> None:
        """Add a bind before its request is sent: a lost answer must not free the devices."""
        self._by_pod[bind.pod] = Assumption(bind, uid, now_s + ASSUMED_FOR_S)

    def drop(self, pods: Iterable[str]) -> None:
        """Remove binds that certainly failed or were undone."""
        for pod in pods:
            self._by_pod.pop(pod, None)

    def unconfirmed(self, seen: Callable[[str], SeenPod | None], now_s: float) -> tuple[Bind, ...]:
        """Binds that the watch has not shown; confirmed and expired ones are removed."""
        self._by_pod = {
            pod: each for pod, each in self._by_pod.items() if now_s < each.until_s and _is_unconfirmed(each, seen(pod))
        }
        return tuple(each.bind for each in self._by_pod.values())


def _is_unconfirmed(assumption: Assumption, pod: SeenPod | None) -> bool:
    if pod is None or pod.uid != assumption.uid or pod.is_ending:
        return False
    return not pod.node and not pod.chosen_node


REMEMBERED = 50_000
"""Number of placed pods that are remembered, 5 MB."""


@dataclass(slots=True)
class Promises:
    """Whom this leader promised which devices. Instants are of one monotonic clock."""

    clock: Callable[[], float] = lambda: 0.0
    inherited_for_s: float = math.inf
    """Seconds from taking the Lease in which all promises count: binding takes milliseconds."""
    is_guarded: bool = True
    """Whether the API server lets only Tonnage write its annotations."""
    _led_since_s: float = -math.inf
    _made: dict[str, Bind] = field(default_factory=dict)
    """Binds that this leader sent, by the pod's uid, for pods that still wait."""
    _sent: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """The last pods that this leader placed, by uid."""

    def lead(self, *, is_guarded: bool) -> None:
        """Begins a lead, which has promised nothing yet."""
        self.is_guarded, self._led_since_s = is_guarded, self.clock()
        self._made, self._sent = {}, OrderedDict()

    def make(self, uid: str, bind: Bind) -> None:
        self._made[uid] = bind
        self._sent[uid] = None
        if len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)

    def is_placed_here(self, uid: str) -> bool:
        """Whether Tonnage placed this pod where its annotations say, as far as they are believed."""
        return self.is_guarded or uid in self._sent

    def keep(self, uids: frozenset[str]) -> None:
        """Forgets all but these, which still wait."""
        if len(self._made) > 2 * len(uids) + 1000:
            self._made = {uid: bind for uid, bind in self._made.items() if uid in uids}

    def held_by(self, pod: SeenPod) -> Bind | None:
        """What a released pod without a node holds; None where nothing was promised, or none of it is believed."""
        if not pod.chosen_node:
            return None
        own = self._made.get(pod.uid)
        if own is not None:
            return own
        is_inherited = self.clock() < self._led_since_s + self.inherited_for_s
        return Bind(pod.name, pod.chosen_node, pod.devices) if self.is_guarded or is_inherited else None
