"""What a Gang's status says after a cycle: its members, and whether they have their places and run."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from cluster.plans import Plan, Reason
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.api.conditions import DEGRADED, PLANNED, READY, ConditionStatus, set_condition
from controller.api.gang import GangStatus, gang_selector


@dataclass(frozen=True, slots=True)
class GangFacts:
    """How one gang stands."""

    needed: int
    """Members that must start together."""
    members: int = 0
    """Pods of it that have not ended."""
    placed: int = 0
    """Members that have a node."""
    running: int = 0
    held_back: Reason | None = None
    """Why the last plan placed none of it."""
    half_started_since_s: float | None = None
    """Since when it stands half started; None while it does not. The status keeps it for the next leader."""


def facts_of_gangs(snapshot: Snapshot, plan: Plan, is_running: Callable[[str], bool]) -> dict[str, GangFacts]:
    """How every gang stands, by `namespace/name`.

    snapshot: the cluster after the plan. is_running: whether the pod of this name runs, beyond being bound.
    """
    held_back = {each.workload.removeprefix("Gang/"): each.reason for each in plan.unplaced}
    pods, found = snapshot.pods, {}
    for number, gang in enumerate(snapshot.gangs):
        mine = np.flatnonzero(pods.gang == number)
        found[gang.name] = GangFacts(
            needed=gang.min_members,
            members=len(mine),
            placed=int(np.count_nonzero(pods.node[mine] != PENDING)),
            running=sum(is_running(pods.names[int(row)]) for row in mine),
            held_back=held_back.get(gang.name),
            half_started_since_s=snapshot.half_started_since_s.get(gang.name),
        )
    return found


def gang_status_after(
    before: Mapping[str, Any], name: str, facts: GangFacts, *, generation: int, at_s: float
) -> dict[str, Any]:
    """The status as plain data; equal to `before` when there is nothing new to say.

    name: without its namespace. generation: of the gang as it was looked at. at_s: now, seconds since the epoch.
    """
    conditions = _read(before).conditions
    for kind, status, reason in _claims(facts):
        conditions = set_condition(
            conditions, kind, status, reason.code, reason.words, generation=generation, at_s=at_s
        )
    return GangStatus(
        observed_generation=generation,
        conditions=conditions,
        members=facts.members,
        running=facts.running,
        half_started_since=facts.half_started_since_s,
        selector=gang_selector(name),
    ).plain()


def _read(before: Mapping[str, Any]) -> GangStatus:
    """The status that stands there; one that cannot be read, because somebody else wrote it, is made anew."""
    try:
        return GangStatus.model_validate(before)
    except ValidationError:
        return GangStatus()


def _claims(facts: GangFacts) -> Iterator[tuple[str, ConditionStatus, Reason]]:
    needed, placed, running = facts.needed, facts.placed, facts.running
    if placed >= needed:
        yield PLANNED, "True", Reason("Placed", f"{placed} members have their places, {needed} must")
    elif facts.members < needed:
        yield PLANNED, "False", Reason("MembersMissing", f"{facts.members} of {needed} members exist")
    else:
        yield PLANNED, "False", facts.held_back or Reason("NotPlaced", f"{placed} of {needed} members have places")
    if running >= needed:
        yield READY, "True", Reason("EnoughRun", f"{running} members run, {needed} must")
    else:
        yield READY, "False", Reason("TooFewRun", f"{running} of {needed} members run")
    if 0 < running < needed:
        yield DEGRADED, "True", Reason("WaitsForMembers", f"{running} members run and wait for {needed - running} more")
    else:
        yield DEGRADED, "False", Reason("AsAsked", "nothing is known to be worse than asked")
