"""Conditions: what is true of an object now, since when and why, as KEP-1623 has them and `kubectl wait` reads them."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from controller.api.fields import Instant, ListOf, Told, keyed_by

ACCEPTED = "Accepted"
"""The object is right by itself and beside the objects that it names."""
PLANNED = "Planned"
"""The last plan could give it what it asks for."""
READY = "Ready"
"""The world is as that plan wants it."""
DEGRADED = "Degraded"
"""It works, but less well than was asked."""
FOUND = "Found"
"""A decider states something about the object that is no action: a verdict, a forecast. Absent until one does."""

LONGEST_MESSAGE = 32_768
LONGEST_REASON = 1_024

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Told):
    """One thing that is true, false or unknown of the object."""

    type: str = Field(
        min_length=1,
        max_length=316,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$",
        description="What is said.",
    )
    status: ConditionStatus = Field(description="Whether it holds.")
    observed_generation: int = Field(
        default=0,
        ge=0,
        description="metadata.generation of the object that this was said of; older: not yet looked at.",
    )
    last_transition_time: Instant = Field(description="When status last changed.")
    reason: str = Field(
        min_length=1,
        max_length=LONGEST_REASON,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why, in one word for machines.",
    )
    message: str = Field(max_length=LONGEST_MESSAGE, description="Why, in words for people.")


Conditions = Annotated[ListOf[Condition], Field(max_length=16), keyed_by("type")]


class ObservedStatus(Told):
    """What every status says: of which generation it speaks, and the conditions."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="metadata.generation that this status was made for."
    )
    conditions: Conditions = Field(default=(), description="What holds of this object now, since when and why.")


def set_condition(
    conditions: Iterable[Condition],
    kind: str,
    status: ConditionStatus,
    reason: str,
    message: str = "",
    *,
    generation: int,
    at_s: float,
) -> tuple[Condition, ...]:
    """The conditions with this one said anew. Its lastTransitionTime moves only when its status changes.

    generation: metadata.generation of the object that was looked at. at_s: now, seconds since the epoch.
    What says the same as before comes back equal, so that a writer can tell that there is nothing to write.
    """
    kept = tuple(conditions)
    before = condition_of(kept, kind)
    since_s = before.last_transition_time if before and before.status == status else float(int(at_s))
    new = Condition(
        type=kind,
        status=status,
        observed_generation=generation,
        last_transition_time=since_s,
        reason=reason[:LONGEST_REASON],
        message=message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…",
    )
    if before is None:
        return (*kept, new)
    return tuple(new if each.type == kind else each for each in kept)


def condition_of(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((each for each in conditions if each.type == kind), None)


def holds(conditions: Iterable[Condition], kind: str, *, generation: int) -> bool:
    """Whether this is true of the object as it is now, not of an older generation of it."""
    found = condition_of(conditions, kind)
    return found is not None and found.status == "True" and found.observed_generation >= generation
