"""Assumed binds: sent, but not yet shown by the watch. They count as done, so that no device is planned twice."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
