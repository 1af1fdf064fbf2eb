"""Status of a policy's tuned concurrency after a cycle: limit, cause, condition, and what the tuner remembers."""

from collections.abc import Mapping

from pydantic import ValidationError

from cluster.autoscaling import ConcurrencyLimit, ConcurrencyTuning
from cluster.plans import Reason
from controller.api.conditions import CONCURRENCY_TUNED, ConditionStatus
from controller.api.scaling_policy import ConcurrencyStatus
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
