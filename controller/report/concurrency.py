"""Tuned concurrency of a policy in reports: its status and condition, and ConfigMaps with the limits in force."""

from collections.abc import Iterable, Iterator, Mapping

from pydantic import ValidationError

from cluster.autoscaling import ConcurrencyLimit, ConcurrencyTuning, Scaler
from cluster.plans import Reason
from controller.api.conditions import CONCURRENCY_TUNED, ConditionStatus
from controller.api.scaling_policy import ConcurrencyStatus
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Job, Write
from controller.snapshot.scalers import contexts_of, pool_of

LONGEST_MESSAGE = 1024
_STATUS_OF: Mapping[str, ConditionStatus] = {
    "Breach": "False",
    "Unsafe": "False",
    "NoData": "False",
    "FewRequests": "Unknown",
    "Scaling": "Unknown",
}
"""Whether the limit follows what was measured, by its cause; `True` for the others."""


def concurrency_status_after(
    old: ConcurrencyStatus | None, tuning: ConcurrencyTuning | None, decided: ConcurrencyLimit | None
) -> ConcurrencyStatus | None:
    """Status of the tuning; None where the policy has none. decided: limit of this cycle's plan, if there is one."""
    if tuning is None:
        return None
    if decided is None:
        kept = old or ConcurrencyStatus(limit=tuning.wanted, in_force=tuning.in_force)
        return kept.model_copy(update={"limit": tuning.wanted, "in_force": tuning.in_force})
    in_force = tuning.in_force_after(decided.limit)
    try:
        return ConcurrencyStatus(
            limit=decided.limit,
            in_force=in_force,
            time=decided.at_s,
            reason=decided.code,
            message=decided.words[:LONGEST_MESSAGE],
            decisions=decided.state.decisions,
            learned=contexts_of(decided.state),
            pool=pool_of(decided.state),
        )
    except ValidationError:  # a source that measures a throughput of 1e50, for example
        words = "figures beyond what a status may hold; what was learned is dropped"
        return ConcurrencyStatus(
            limit=tuning.wanted, in_force=tuning.in_force, time=decided.at_s, reason="NoData", message=words
        )


def concurrency_claim(
    tuning: ConcurrencyTuning, status: ConcurrencyStatus, *, publishes: bool
) -> tuple[str, ConditionStatus, Reason]:
    """The condition ConcurrencyTuned. What hides the limit from the replicas, and a source that fails, count more than
    the last decision.

    publishes: whether the operator writes ConfigMaps.
    """
    if tuning.config_map and not publishes:
        words = f"the operator does not write ConfigMap/{tuning.config_map}; set autoscaler.configMaps in the chart"
        return CONCURRENCY_TUNED, "False", Reason("NotPublished", words)
    if tuning.problem:
        code, _, words = tuning.problem.partition(": ")
        return CONCURRENCY_TUNED, "False", Reason(code, words)
    if not status.reason:
        return CONCURRENCY_TUNED, "Unknown", Reason("NotDecided", "the replicas were not measured yet")
    return CONCURRENCY_TUNED, _STATUS_OF.get(status.reason, "True"), Reason(status.reason, status.message)


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
