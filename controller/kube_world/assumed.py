"""Binds that were issued and that the watch has not shown yet: they count as true, so that nobody plans twice."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster.actions import Bind
from controller.kube.cluster_view import SeenPod

ASSUMED_FOR_S = 30.0
"""After so long without confirmation a bind is taken not to have happened. Watches lag by milliseconds; this outlasts a
restart of the API server."""


@dataclass(frozen=True, slots=True)
class Assumption:
    bind: Bind
    uid: str
    """Of the pod: another pod of that name is not meant."""
    until_s: float


class Assumed:
    """What was issued, by pod. Instants are of one monotonic clock."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Assumption] = {}

    def __len__(self) -> int:
        return len(self._by_pod)

    def add(self, bind: Bind, uid: str, now_s: float) -> None:
        """Before the request leaves: an answer that is lost must not free the devices."""
        self._by_pod[bind.pod] = Assumption(bind, uid, now_s + ASSUMED_FOR_S)

    def drop(self, pods: Iterable[str]) -> None:
        """These certainly did not happen, or were taken back."""
        for pod in pods:
            self._by_pod.pop(pod, None)

    def standing(self, seen: Callable[[str], SeenPod | None], now_s: float) -> tuple[Bind, ...]:
        """The binds that still only stand here; what the watch has shown, or what is too old, is forgotten."""
        self._by_pod = {
            pod: each for pod, each in self._by_pod.items() if now_s < each.until_s and _is_unconfirmed(each, seen(pod))
        }
        return tuple(each.bind for each in self._by_pod.values())


def _is_unconfirmed(assumption: Assumption, pod: SeenPod | None) -> bool:
    if pod is None or pod.uid != assumption.uid or pod.is_ending:
        return False
    return not pod.node and not pod.chosen_node
