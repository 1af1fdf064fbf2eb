"""Statuses of Tonnage's objects: the condition Accepted of every object, the state of every gang and policy."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from cluster.autoscaling import ConcurrencyLimit, Scaler
from cluster.errors import Mistake
from cluster.plans import Plan, Reason, ServicePlan
from cluster.snapshot import PENDING, Snapshot
from controller.api import conditions as api_conditions
from controller.api.gang import KIND as GANG, GangStatus, gang_selector
from controller.api.kind import Kind
from controller.api.model_service import KIND as SERVICE
from controller.api.scaling_policy import KIND as SCALING_POLICY
from controller.api.structs import OwnObject
from controller.api.team import KIND as TEAM, TeamStatus
from controller.fair_shares import in_turns
from controller.kube.sender import WriteJob
from controller.kube_world.observer import Caches, Observer
from controller.objects.own_objects import by_object
from controller.ports import Outcome
from controller.report.fleet_metrics import Draw, IsRunning, draws_of
from controller.report.routes import removals_of, writes_of
from controller.report.scaling_status import Published, limit_writes, scaling_status_after
from controller.report.service_status import ServiceFacts, facts_of_services, service_status_after, steady
from controller.report.statuses import Status, accepted, each_alone, status_job
from controller.snapshot.scalers import is_past_bound
from controller.snapshot.teams import TeamFacts, facts_of_teams, team_status_after


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
    roles: tuple[str, str, str] = ("", "", "")
    """What its groups lack, in words, beside the members that exist, that are placed, and that run."""
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
        names = [pods.names[int(row)] for row in mine]
        placed = pods.node[mine] != PENDING
        running = [name for name in names if is_running(name)]
        of_state = (names, [name for name, is_placed in zip(names, placed, strict=True) if is_placed], running)
        exist, have_node, run = (gang.missing(each) if gang.groups else "" for each in of_state)
        found[gang.name] = GangFacts(
            needed=gang.asked_members or gang.min_members,
            members=len(mine),
            placed=int(np.count_nonzero(placed)),
            running=len(running),
            roles=(exist, have_node, run),
            held_back=held_back.get(gang.name),
            half_started_since_s=snapshot.half_started_since_s.get(gang.name),
        )
    return found


def gang_status_after(before: Status, name: str, facts: GangFacts, *, generation: int, at_s: float) -> dict[str, Any]:
    """Status as plain data; equal to `before` when nothing changed.

    name: without its namespace. generation: of the observed gang. at_s: now, seconds since the epoch.
    """
    was = GangStatus.read(before)
    # It runs from when all that it needs ran until none has a node. A bind that is on its way may still fail.
    whole_since = was.whole_since if facts.placed else None
    if facts.running >= facts.needed and not facts.roles[2] and whole_since is None:
        whole_since = at_s
    return GangStatus(
        observed_generation=generation,
        conditions=api_conditions.conditions_after(
            was.conditions, _gang_claims(facts), generation=generation, at_s=at_s
        ),
        members=facts.members,
        running=facts.running,
        whole_since=whole_since,
        half_started_since=facts.half_started_since_s,
        selector=gang_selector(name),
    ).plain()


def _gang_claims(facts: GangFacts) -> Iterator[api_conditions.Claim]:
    needed, placed, running = facts.needed, facts.placed, facts.running
    absent, unplaced, idle = (f"; missing: {words}" if words else "" for words in facts.roles)
    if placed >= needed and not unplaced:
        yield api_conditions.PLANNED, "True", Reason("Placed", f"{placed} members are placed, {needed} are required")
    elif facts.members < needed or absent:
        words = f"{facts.members} of {needed} members exist{absent}"
        yield api_conditions.PLANNED, "False", Reason("MembersMissing", words)
    else:
        why = facts.held_back or Reason("NotPlaced", f"{placed} of {needed} members are placed{unplaced}")
        yield api_conditions.PLANNED, "False", why
    if running >= needed and not idle:
        yield api_conditions.READY, "True", Reason("EnoughRun", f"{running} members run, {needed} are required")
    else:
        yield api_conditions.READY, "False", Reason("TooFewRun", f"{running} of {needed} members run{idle}")
    if running > 0 and (running < needed or idle):
        words = f"{running} members run and wait for {facts.roles[2] or f'{needed - running} more'}"
        yield api_conditions.DEGRADED, "True", Reason("WaitsForMembers", words)
    else:
        yield api_conditions.DEGRADED, "False", Reason("AsAsked", "no degradation is known")


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What a cycle knows of one object."""

    mistaken: tuple[Mistake, ...] = ()
    finding: Reason | None = None
    """What a decider states about it."""
    gang: GangFacts | None = None
    scaler: Scaler | None = None
    limit: ConcurrencyLimit | None = None
    """Concurrency limit of this plan for a policy, where one was decided."""
    publishes: bool = False
    """Whether limits are written to the ConfigMaps that policies name, or routes of a service."""
    service: tuple[ServicePlan, ServiceFacts] | None = None
    team: TeamFacts | None = None

    @property
    def is_constant(self) -> bool:
        """Whether the same facts make the same status; figures of a plan and a load change in every cycle."""
        return self.service is None and self.team is None and (self.scaler is None or is_past_bound(self.scaler))


MOST_WRITES = 240
"""Most writes of statuses at once: half a second of them. A tenant may change thousands of objects together."""


class StatusReports:
    """Statuses of all objects after each cycle.

    It remembers what the status of an object was made from that needed no write: made from the same, it needs none.
    Tenants decide how many objects there are, and each costs a cycle a tenth of a millisecond.
    """

    def __init__(
        self,
        observer: Observer,
        caches: Caches,
        is_running: IsRunning,
        *,
        limits: bool = False,
        routes: bool = False,
    ) -> None:
        """is_running: whether a pod is running, not only bound. limits, routes: whether ConfigMaps of concurrency
        limits and routes of services are written."""
        self._observer, self._caches, self._is_running = observer, caches, is_running
        self._limits, self._routes, self._published = limits, routes, Published()
        self._settled: Settled = {}
        self._drawn: dict[str, tuple[Draw, float]] = {}
        """What is told of the power of each service, and since when."""
        self._written: Counter[str] = Counter()
        """Writes by namespace: in each, objects have their turns, those first that come after the last one."""

    def jobs(
        self, snapshot: Snapshot, plan: Plan, outcome: Outcome, generations: Mapping[str, int], at_s: float
    ) -> Iterator[WriteJob]:
        """Writes of the changed statuses, `MOST_WRITES` at most in turns of the namespaces, and of concurrency limits.

        snapshot: the cluster after the plan. generations: metadata.generation of each service when the plan was made.
        at_s: now, seconds since the epoch.
        """
        # Read before the errors, so that no error of an older generation is reported for a newer one.
        objects = [(kind, cache.all()) for kind, cache in self._caches.own.items() if kind.has_status]
        wrong = by_object(self._observer.see().mistakes)
        found = {finding.about: finding.reason for finding in plan.findings}
        gangs = facts_of_gangs(snapshot, plan, self._is_running)
        self._drawn = steady(draws_of(snapshot), self._drawn, at_s)
        draws = {name: draw for name, (draw, _) in self._drawn.items()}
        services = facts_of_services(snapshot, plan, outcome, generations, self._is_running, draws)
        limits = {limit.scaler: limit for limit in plan.limits}
        teams = facts_of_teams(snapshot) if snapshot.teams else {}
        scalers = {each.name: each for each in snapshot.scalers}

        def facts(kind: Kind, name: str) -> ObjectFacts:
            about = f"{kind.name}/{name}"
            return ObjectFacts(
                wrong.get(about, ()),
                found.get(about),
                gangs.get(name) if kind is GANG else None,
                scalers.get(name) if kind is SCALING_POLICY else None,
                limits.get(name) if kind is SCALING_POLICY else None,
                self._routes if kind is SERVICE else self._limits,
                services.get(name) if kind is SERVICE else None,
                teams.get(name) if kind is TEAM else None,
            )

        by_namespace: defaultdict[str, list[tuple[Kind, str, OwnObject]]] = defaultdict(list)
        for kind, named in objects:
            for name, obj in named.items():
                by_namespace[obj.metadata.namespace].append((kind, name, obj))
        rotated = (
            (*each[(turn := self._written[space] % len(each)) :], *each[:turn]) for space, each in by_namespace.items()
        )
        known = ((kind, name, obj, facts(kind, name)) for kind, name, obj in in_turns(rotated))
        for job in islice(status_jobs(known, at_s, self._settled), MOST_WRITES):
            self._written[job.about.partition("/")[2].rpartition("/")[0]] += 1
            yield job
        for gone in self._written.keys() - by_namespace.keys():
            del self._written[gone]
        own = self._caches.own[SERVICE].all() if self._routes else {}
        known_own = ((n, own[n], each) for n, each in services.items() if n in own)
        routes = (w for n, obj, each in known_own for w in each_alone("ModelService", n, writes_of(obj, *each)))
        of_limits = limit_writes(snapshot.scalers, plan.limits) if self._limits else ()
        yield from islice(self._published.jobs((*of_limits, *routes), at_s), MOST_WRITES)


Settled = dict[tuple[str, str], tuple[OwnObject, ObjectFacts]]
"""Object and facts of which no write was needed, by kind and name."""


def status_jobs(
    objects: Iterable[tuple[Kind, str, OwnObject, ObjectFacts]], at_s: float, settled: Settled
) -> Iterator[WriteJob]:
    """Writes of the changed statuses of these objects, by kind and name.

    at_s: now, seconds since the epoch. settled: of the cycle before, which is brought up to date as writes are taken.
    """
    gone = set(settled)
    for kind, name, obj, facts in objects:
        gone.discard((kind.name, name))
        was, known = settled.pop((kind.name, name), (None, facts))
        # A service without a plan and without errors is planned in a later cycle.
        is_unplanned = kind is SERVICE and not facts.mistaken and facts.service is None
        if obj.metadata.deletion_timestamp or is_unplanned:
            continue
        own: tuple[WriteJob, ...] = ()
        # The object is the one of before, as its cache has it; what else its status is made from is equal.
        if not (facts.is_constant and was is obj and known == facts):
            own = tuple(each_alone(kind.name, name, _status_job(kind, name, obj, facts, at_s)))
        if not own:
            settled[kind.name, name] = obj, facts
        yield from own
    for key in gone:
        del settled[key]


def _status_job(kind: Kind, name: str, obj: OwnObject, facts: ObjectFacts, at_s: float) -> Iterator[WriteJob]:
    before, generation = msgspec.json.decode(obj.status), obj.metadata.generation
    if facts.service is not None and not facts.mistaken:
        plan, service = facts.service
        generation = service.generation
        status: Status = service_status_after(before, plan, service, at_s)
    else:
        status = _claimed(before, accepted(facts.mistaken), generation, at_s)
    gang, scaler, finding = facts.gang, facts.scaler, facts.finding
    if facts.team is not None:
        status = {**status, **team_status_after(TeamStatus.read(status), facts.team, at_s).plain()}
    if gang is not None and msgspec.json.decode(obj.spec).get("minMembers") == gang.needed:  # of the current spec
        status = gang_status_after(status, obj.metadata.name, gang, generation=generation, at_s=at_s)
    if scaler is not None:
        limit, publishes = facts.limit, facts.publishes
        status = scaling_status_after(
            status, scaler, finding, generation=generation, at_s=at_s, limit=limit, publishes=publishes
        )
    elif finding is not None:
        status = _claimed(status, (api_conditions.FOUND, "True", finding), generation, at_s)
    elif (
        api_conditions.condition_of(api_conditions.ObservedStatus.read(status).conditions, api_conditions.FOUND)
        is not None
    ):
        gone = Reason("NothingFound", "no decider states anything about it now")
        status = _claimed(status, (api_conditions.FOUND, "False", gone), generation, at_s)
    if status != before and kind is SERVICE and facts.publishes and (removals := [*removals_of(obj, before)]):
        # Until they are removed, the status is that of the generation before: so they are tried again.
        last = status_job(kind, name, obj, status).write
        yield from (WriteJob(f"{kind.name}/{name} routes", each) for each in (*removals, last))
        status = {**status, "observedGeneration": before["observedGeneration"]}
    if status != before:
        yield status_job(kind, name, obj, status)


def _claimed(before: Status, claim: api_conditions.Claim, generation: int, at_s: float) -> Status:
    """The status with this condition; the rest is unchanged."""
    old = api_conditions.ObservedStatus.read(before)
    conditions = api_conditions.conditions_after(old.conditions, [claim], generation=generation, at_s=at_s)
    return {**before, **api_conditions.ObservedStatus(observed_generation=generation, conditions=conditions).plain()}
