"""Conditions: state of an object, since when and why, in the form of KEP-1623 that `kubectl wait` reads."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from controller.api.fields import Instant, ListOf, StatusPart, keyed_by

if TYPE_CHECKING:
    from cluster.plans import Reason

ACCEPTED, PLANNED, READY, DEGRADED, FOUND = "Accepted", "Planned", "Ready", "Degraded", "Found"
PROFILE_ESTIMATED = "ProfileEstimated"
METRICS_AVAILABLE, FORECAST_TRUSTED = "MetricsAvailable", "ForecastTrusted"
SCALING_LIMITED, CONFLICT, CONCURRENCY_TUNED = "ScalingLimited", "Conflict", "ConcurrencyTuned"
CONDITIONS = {
    ACCEPTED: "the object is valid, and so are its references to other objects",
    PLANNED: "the last plan satisfies the object's requests",
    READY: "the cluster matches that plan; of a ScalingPolicy: it decides by fresh metrics, and nothing opposes it",
    DEGRADED: "the object works, but below what its spec asks for",
    PROFILE_ESTIMATED: "the mix of a ModelService rests on estimated profiles; absent until it does",
    METRICS_AVAILABLE: "the load of a ScalingPolicy is measured, and recent",
    FORECAST_TRUSTED: "forecasts of that load are better than naive ones",
    SCALING_LIMITED: "a limit keeps the replicas from those of least expected cost",
    CONFLICT: "another autoscaler scales the same target; then nothing is changed",
    CONCURRENCY_TUNED: "the concurrency limit of a target's replicas was decided by what was measured under it",
    FOUND: "a decider has a finding about the object; absent until then",
}
"""When each condition holds."""
BAD_INPUT = "BadInput"
"""Reason of the condition Accepted, and of the Event, of an object that is refused for what is written in it; also the
code of a plan's refusal of a service."""

LONGEST_MESSAGE = 32_768
LONGEST_REASON = 1_024

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(StatusPart):
    """One aspect of the object's state: true, false or unknown."""

    type: str = Field(
        min_length=1,
        max_length=316,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$",
        description="Type of the condition.",
    )
    status: ConditionStatus = Field(description="Whether the condition holds.")
    observed_generation: int = Field(
        default=0,
        ge=0,
        description="metadata.generation that the condition describes; if older, the change is not yet evaluated.",
    )
    last_transition_time: Instant = Field(description="When status last changed.")
    reason: str = Field(
        min_length=1,
        max_length=LONGEST_REASON,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Machine-readable cause, one word.",
    )
    message: str = Field(max_length=LONGEST_MESSAGE, description="Human-readable cause.")


Conditions = Annotated[ListOf[Condition], Field(max_length=16), keyed_by("type")]


class ObservedStatus(StatusPart):
    """Fields that every status has: the generation it describes, and the conditions."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="metadata.generation that this status describes."
    )
    conditions: Conditions = Field(default=(), description="Current state of the object, since when and why.")

    @classmethod
    def read(cls, before: Mapping[str, Any]) -> Self:
        """The present status of an object; an empty one where another writer left one that cannot be read."""
        try:
            return cls.model_validate(before)
        except ValidationError:
            return cls()


Claim = tuple[str, ConditionStatus, "Reason"]
"""Condition that is to be set: its type, its status, and why."""


def conditions_after(
    conditions: Iterable[Condition], claims: Iterable[Claim], *, generation: int, at_s: float
) -> tuple[Condition, ...]:
    """The conditions with these set. A lastTransitionTime moves only when the status of its condition changes.

    generation: metadata.generation of the evaluated object. at_s: now, seconds since the epoch.
    An unchanged condition is returned equal, so that a writer can tell that there is nothing to write.
    """
    made = {each.type: each for each in conditions}
    for kind, status, cause in claims:
        before, words, since_s = made.get(kind), cause.words, float(int(at_s))
        if before is not None and before.status == status:
            since_s = before.last_transition_time
        made[kind] = Condition(
            type=kind,
            status=status,
            observed_generation=generation,
            last_transition_time=since_s,
            reason=cause.code[:LONGEST_REASON],
            message=words if len(words) <= LONGEST_MESSAGE else f"{words[: LONGEST_MESSAGE - 1]}…",
        )
    return tuple(made.values())


def condition_of(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((each for each in conditions if each.type == kind), None)
