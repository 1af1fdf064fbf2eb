"""Promises: pods whose gate was removed and that kube-scheduler has not bound, as far as they are believed.

Such a pod holds its devices by annotations alone. Where the API server lets only Tonnage write them
(deploy/fence/marks.yaml), they are believed. Elsewhere anybody can write them, so a leader believes what it wrote
itself, and for a short time what it finds when it takes the Lease.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.actions import Bind
from controller.kube.cluster_view import SeenPod

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
