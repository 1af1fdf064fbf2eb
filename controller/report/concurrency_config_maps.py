"""ConfigMaps with the concurrency limits in force: what a gateway, a sidecar or a server's wrapper reads as a file."""

from collections.abc import Iterable, Iterator

from cluster.autoscaling import Scaler
from cluster.concurrency import ConcurrencyLimit
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Job, Write

KEY = "concurrency"
"""Key of the limit, and the name of its file in a volume."""
MANAGER = "tonnage-concurrency"
AGAIN_S = 60.0
"""Time after which an unchanged limit is sent again: a ConfigMap that was deleted or could not be written is repaired
within it, and nothing needs to be read. An apply without a change writes nothing on the API server."""


class PublishedLimits:
    """Writes of the limits; it remembers what was sent in this process, so that it is not sent in every cycle."""

    def __init__(self) -> None:
        self._sent: dict[str, tuple[int, float]] = {}

    def jobs(self, scalers: Iterable[Scaler], decided: Iterable[ConcurrencyLimit], at_s: float) -> Iterator[Job]:
        """Writes of the limits that changed, or were sent long ago.

        decided: limits of this cycle's plan. at_s: now, seconds since the epoch.
        """
        wanted = _in_force(scalers, {each.scaler: each.limit for each in decided})
        self._sent = {name: sent for name, sent in self._sent.items() if name in wanted}
        for name, limit in wanted.items():
            before, sent_at_s = self._sent.get(name, (None, at_s))
            if before != limit or at_s - sent_at_s >= AGAIN_S:
                self._sent[name] = (limit, at_s)
                yield Job(f"ConfigMap/{name}", config_map_write(name, limit))


def _in_force(scalers: Iterable[Scaler], decided: dict[str, int]) -> dict[str, int]:
    """Limit in force by ConfigMap; of several policies that name one, that of the first by name."""
    found: dict[str, int] = {}
    for scaler in sorted(scalers, key=lambda each: each.name):
        tuning = scaler.concurrency
        if tuning is not None and tuning.config_map and scaler.mode != "Off":
            found.setdefault(tuning.config_map, tuning.in_force_after(decided.get(scaler.name, tuning.wanted)))
    return found


def config_map_write(name: str, limit: int) -> Write:
    """Server-side apply of the limit to a ConfigMap, which it creates. name: `namespace/name`.

    A key of that name that somebody else wrote is not taken over. The ConfigMap outlives the policy: pods that mount it
    could not start without it.
    """
    namespace, _, bare = name.partition("/")
    metadata = {"name": bare, "namespace": namespace}
    return Write(
        "PATCH",
        f"/api/v1/namespaces/{namespace}/configmaps/{bare}",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: str(limit)}},
        APPLY_PATCH,
        {"fieldManager": MANAGER},
    )
