"""Status of a Gang after a cycle: its members, and whether they are placed and running."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from cluster.plans import Plan, Reason
from cluster.snapshot import PENDING, Snapshot
from controller.api.conditions import DEGRADED, PLANNED, READY, ConditionStatus, set_condition
from controller.api.gang import GangStatus, gang_selector


@dataclass(frozen=True, slots=True)
class GangFacts:
    """State of one gang."""

    needed: int
    """Number of members that must start together."""
    members: int = 0
    """Number of its pods that have not ended."""
    placed: int = 0
    """Number of members with a node."""
    running: int = 0
    held_back: Reason | None = None
    """Reason why the last plan placed no member."""
    half_started_since_s: float | None = None
    """Time since which it is partly started, seconds since the epoch; None otherwise. Stored in the status for the next
    leader."""


def facts_of_gangs(snapshot: Snapshot, plan: Plan, is_running: Callable[[str], bool]) -> dict[str, GangFacts]:
    """State of every gang by `namespace/name`.

    snapshot: the cluster after the plan. is_running: whether a pod is running, not only bound.
    """
    held_back = {each.workload.removeprefix("Gang/"): each.reason for each in plan.unplaced}
    pods, found = snapshot.pods, {}
    members = np.flatnonzero(pods.gang >= 0)
    members = members[np.argsort(pods.gang[members], kind="stable")]
    starts = np.searchsorted(pods.gang[members], np.arange(len(snapshot.gangs) + 1))
    for number, gang in enumerate(snapshot.gangs):
        mine = members[starts[number] : starts[number + 1]]
        found[gang.name] = GangFacts(
            needed=gang.asked_members or gang.min_members,
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
    """Status as plain data; equal to `before` when nothing changed.

    name: without its namespace. generation: of the observed gang. at_s: now, seconds since the epoch.
    """
    was = _read(before)
    conditions = was.conditions
    for kind, status, reason in _claims(facts):
        conditions = set_condition(
            conditions, kind, status, reason.code, reason.words, generation=generation, at_s=at_s
        )
    return GangStatus(
        observed_generation=generation,
        conditions=conditions,
        members=facts.members,
        running=facts.running,
        whole_since=_whole_since(was, facts, at_s),
        half_started_since=facts.half_started_since_s,
        selector=gang_selector(name),
    ).plain()


def _whole_since(was: GangStatus, facts: GangFacts, at_s: float) -> float | None:
    """Time since which it runs: from when all that it needs had a node until none has one."""
    if facts.placed >= facts.needed:
        return at_s if was.whole_since is None else was.whole_since
    return was.whole_since if facts.placed else None


def _read(before: Mapping[str, Any]) -> GangStatus:
    """Previous status; an empty one where another writer left an unreadable status."""
    try:
        return GangStatus.model_validate(before)
    except ValidationError:
        return GangStatus()


def _claims(facts: GangFacts) -> Iterator[tuple[str, ConditionStatus, Reason]]:
    needed, placed, running = facts.needed, facts.placed, facts.running
    if placed >= needed:
        yield PLANNED, "True", Reason("Placed", f"{placed} members are placed, {needed} are required")
    elif facts.members < needed:
        yield PLANNED, "False", Reason("MembersMissing", f"{facts.members} of {needed} members exist")
    else:
        yield PLANNED, "False", facts.held_back or Reason("NotPlaced", f"{placed} of {needed} members are placed")
    if running >= needed:
        yield READY, "True", Reason("EnoughRun", f"{running} members run, {needed} are required")
    else:
        yield READY, "False", Reason("TooFewRun", f"{running} of {needed} members run")
    if 0 < running < needed:
        yield DEGRADED, "True", Reason("WaitsForMembers", f"{running} members run and wait for {needed - running} more")
    else:
        yield DEGRADED, "False", Reason("AsAsked", "no degradation is known")
