"""Statuses of Tonnage's objects: the condition Accepted of every object, the state of every gang and policy."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from pydantic import ValidationError

from cluster.autoscaling import ConcurrencyLimit, Scaler
from cluster.errors import Mistake
from cluster.plans import Plan, Reason
from cluster.snapshot import PENDING, Snapshot
from controller.api import conditions as api_conditions
from controller.api.gang import KIND as GANG, GangStatus, gang_selector
from controller.api.kind import Kind
from controller.api.model_service import KIND as SERVICE
from controller.api.scaling_policy import KIND as SCALING_POLICY
from controller.api.structs import OwnObject
from controller.api.validation import words_of
from controller.kube.sender import WriteJob
from controller.kube_world.observer import Caches, Observer
from controller.objects.own_objects import by_object
from controller.report.fleet_metrics import IsRunning
from controller.report.scaling_status import PublishedLimits, scaling_status_after
from controller.report.service_status import each_alone, found_after, status_write
from controller.snapshot.scalers import is_past_bound


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


def facts_of_gangs(snapshot: Snapshot, plan: Plan, is_running: IsRunning) -> dict[str, GangFacts]:
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
    try:
        was = GangStatus.model_validate(before)
    except ValidationError:
        was = GangStatus()  # another writer's status
    conditions = was.conditions
    for kind, status, reason in _gang_claims(facts):
        conditions = api_conditions.set_condition(
            conditions, kind, status, reason.code, reason.words, generation=generation, at_s=at_s
        )
    # It runs from when all that it needs had a node until none has one.
    whole_since = was.whole_since if facts.placed else None
    if facts.placed >= facts.needed and whole_since is None:
        whole_since = at_s
    return GangStatus(
        observed_generation=generation,
        conditions=conditions,
        members=facts.members,
        running=facts.running,
        whole_since=whole_since,
        half_started_since=facts.half_started_since_s,
        selector=gang_selector(name),
    ).plain()


def _gang_claims(facts: GangFacts) -> Iterator[tuple[str, api_conditions.ConditionStatus, Reason]]:
    needed, placed, running = facts.needed, facts.placed, facts.running
    if placed >= needed:
        yield api_conditions.PLANNED, "True", Reason("Placed", f"{placed} members are placed, {needed} are required")
    elif facts.members < needed:
        yield api_conditions.PLANNED, "False", Reason("MembersMissing", f"{facts.members} of {needed} members exist")
    else:
        yield (
            api_conditions.PLANNED,
            "False",
            facts.held_back or Reason("NotPlaced", f"{placed} of {needed} members are placed"),
        )
    if running >= needed:
        yield api_conditions.READY, "True", Reason("EnoughRun", f"{running} members run, {needed} are required")
    else:
        yield api_conditions.READY, "False", Reason("TooFewRun", f"{running} of {needed} members run")
    if 0 < running < needed:
        yield (
            api_conditions.DEGRADED,
            "True",
            Reason("WaitsForMembers", f"{running} members run and wait for {needed - running} more"),
        )
    else:
        yield api_conditions.DEGRADED, "False", Reason("AsAsked", "no degradation is known")


Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scaling:
    """What a policy's status is made from, besides the finding about it."""

    scaler: Scaler
    limit: ConcurrencyLimit | None
    """Concurrency limit of this plan, where one was decided."""
    publishes: bool
    """Whether limits are written to the ConfigMaps that policies name."""


Settled = dict[tuple[str, str], tuple[object, ...]]
"""What an object's status was made from when it needed no write, by kind and name: made from the same, it needs none.

Tenants decide how many objects there are, and each costs a cycle a tenth of a millisecond.
"""

OwnJobs = Callable[[Snapshot, Plan, float], Iterator[WriteJob]]
"""Writes of statuses from the snapshot after a plan, the plan, and the time in seconds since the epoch."""


def reports_on(
    observer: Observer, caches: Caches, is_running: IsRunning, published: PublishedLimits | None = None
) -> OwnJobs:
    """Status writes for the objects of these caches, and of the concurrency limits that are published.

    is_running: whether a pod is running, not only bound. published: ConfigMaps of the limits; None: none are written.
    """

    settled: Settled = {}

    def jobs(snapshot: Snapshot, plan: Plan, at_s: float) -> Iterator[WriteJob]:
        objects = [(kind, cache.all()) for kind, cache in caches.own.items() if kind.has_status]
        gangs = facts_of_gangs(snapshot, plan, is_running)
        found = {finding.about: finding.reason for finding in plan.findings}
        scalers = {scaler.name: scaler for scaler in snapshot.scalers}
        limits = {limit.scaler: limit for limit in plan.limits}
        wrong, publishes = observer.see().mistakes, published is not None
        yield from own_status_jobs(
            objects, wrong, gangs, at_s, found, scalers, limits, publishes=publishes, settled=settled
        )
        if published is not None:
            yield from published.jobs(snapshot.scalers, plan.limits, at_s)

    return jobs


def own_status_jobs(
    objects: Iterable[tuple[Kind, Mapping[str, OwnObject]]],
    mistakes: Iterable[Mistake],
    gangs: Mapping[str, GangFacts],
    at_s: float,
    found: Mapping[str, Reason] | None = None,
    scalers: Mapping[str, Scaler] | None = None,
    limits: Mapping[str, ConcurrencyLimit] | None = None,
    *,
    publishes: bool = False,
    settled: Settled | None = None,
) -> Iterator[WriteJob]:
    """Writes of the changed statuses.

    objects: kind and objects by name, read before the snapshot from which the errors come, so that no error of an older
    generation is reported for a newer one. mistakes: errors of the whole cluster. gangs: state of each gang; one whose
    spec has changed since is reported in the next cycle. at_s: now, seconds since the epoch. found: findings of
    deciders, by `Kind/name`. scalers: state of each policy, by name. limits: concurrency limits of the plan, likewise.
    publishes: whether limits are written to the ConfigMaps that policies name. settled: of the cycles before, which is
    brought up to date.

    For a service only errors are reported here: it was left out of the plan, which reports the others.
    """
    wrong, before = by_object(mistakes), dict(settled or {})
    if settled is not None:
        settled.clear()
    for kind, named in objects:
        for name, obj in named.items():
            mistaken = wrong.get(f"{kind.name}/{name}", ())
            if obj.metadata.deletion_timestamp or (kind is SERVICE and not mistaken):
                continue
            finding = (found or {}).get(f"{kind.name}/{name}")
            scaler = (scalers or {}).get(name) if kind is SCALING_POLICY else None
            gang = gangs.get(name) if kind is GANG else None
            scaling = None if scaler is None else Scaling(scaler, (limits or {}).get(name), publishes)
            made_from = (obj, mistaken, gang, finding)
            # Figures of a policy that is evaluated change in every cycle.
            is_constant = scaler is None or is_past_bound(scaler)
            known = before.get((kind.name, name))
            own: tuple[WriteJob, ...] = ()
            # The object is the one of before, as its cache has it; what else its status is made from is equal.
            if not (is_constant and known is not None and known[0] is obj and known[1:] == made_from[1:]):
                made = _own_job(kind, name, obj, mistaken, gang, finding, scaling, at_s)
                own = tuple(each_alone(kind.name, name, made))
            if settled is not None and not own:
                settled[kind.name, name] = made_from
            yield from own


def _own_job(
    kind: Kind,
    name: str,
    obj: OwnObject,
    mistaken: Sequence[Mistake],
    gang: GangFacts | None,
    finding: Reason | None,
    scaling: Scaling | None,
    at_s: float,
) -> Iterator[WriteJob]:
    before, generation = msgspec.json.decode(obj.status), obj.metadata.generation
    status: Status = accepted_after(before, mistaken, generation=generation, at_s=at_s)
    if gang is not None and msgspec.json.decode(obj.spec).get("minMembers") == gang.needed:  # of the current spec
        status = gang_status_after(status, obj.metadata.name, gang, generation=generation, at_s=at_s)
    if scaling is not None:
        status = scaling_status_after(
            status,
            scaling.scaler,
            finding,
            generation=generation,
            at_s=at_s,
            limit=scaling.limit,
            publishes=scaling.publishes,
        )
    else:
        status = found_after(status, finding, generation, at_s)
    if status != before:
        yield WriteJob(f"{kind.name}/{name}", status_write(kind, name, obj.metadata.uid, status))


def accepted_after(before: Status, mistaken: Sequence[Mistake], *, generation: int, at_s: float) -> dict[str, Any]:
    """The status with its condition Accepted updated; the rest is unchanged."""
    try:
        old = api_conditions.ObservedStatus.model_validate(before)
    except ValidationError:
        before, old = {}, api_conditions.ObservedStatus()  # another writer's status
    words = words_of(mistaken)
    conditions = api_conditions.set_condition(
        old.conditions,
        api_conditions.ACCEPTED,
        "False" if mistaken else "True",
        api_conditions.BAD_INPUT if mistaken else "Valid",
        words or "its fields and the objects that it names are valid",
        generation=generation,
        at_s=at_s,
    )
    return {**before, **api_conditions.ObservedStatus(observed_generation=generation, conditions=conditions).plain()}
