"""The operator's cluster: everything that it watches, and the writer of plans and reports."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from random import Random
from uuid import uuid4

import structlog

from cluster.errors import ActionError, Mistake, ObservationError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.kind import Kind
from controller.api.kinds import KINDS
from controller.background.tasks import Background
from controller.deciders.decider import Entry
from controller.deciders.pipeline import ORDER
from controller.kube import api_server, connection, credentials, leader_election, sender
from controller.kube.cache import Cache, WatchSurroundings as Watching
from controller.kube.request import ApiRequest
from controller.kube_world import cached_view, observer, planning_view, refusals, reservations, world
from controller.loops import seat_checks
from controller.loops.autoscaler import loop as autoscaler
from controller.loops.health import loop as health
from controller.loops.isolation import loop as isolation
from controller.loops.loop import ControlLoop, CycleTrigger, LoopClocks, LoopContext
from controller.loops.power import control as power
from controller.metrics.registry import Meter, count_request, foresee_requests
from controller.placers import NO_CLAIMS
from controller.ports import Outcome
from controller.report.events import AT_A_TIME, Events, decisions_of, gangs_of, of_whole_services, refusals_of
from controller.report.own_statuses import MOST_WRITES, StatusReports
from controller.report.statuses import log_unwritten
from controller.settings import OperatorSettings
from controller.snapshot.builder import FACTS
from controller.snapshot.scalers import Fact, Facts

log = structlog.get_logger(__name__)

LoopOf = Callable[[OperatorSettings], ControlLoop | None]
"""Makes a loop as the settings configure it; None where they do not enable it. Raises ConfigError."""
LOOPS: tuple[LoopOf, ...] = (
    power.enabled,
    autoscaler.enabled,
    health.enabled,  # behind power, whose caps are facts of health
    isolation.enabled,
    seat_checks.enabled,
)
"""Loops beside the planning cycle. A decider whose facts are objects of its kinds needs none."""


@dataclass(frozen=True, slots=True)
class Registries:
    """All registries of an operator; a test adds to them what a new folder brings."""

    kinds: tuple[Kind, ...] = KINDS
    facts: Facts = FACTS
    order: tuple[Entry, ...] = ORDER
    loops: tuple[LoopOf, ...] = LOOPS

    def plus(self, *, kind: Kind, fact: Fact, decider: Entry) -> "Registries":
        """These registries with one more line in each, as a new decider needs."""
        order = (*self.order[:-1], decider, self.order[-1])
        return replace(self, kinds=(*self.kinds, kind), facts=(*self.facts, (kind, fact)), order=order)


PRODUCT = Registries()


REST_S = 10.0
"""Seconds that it leaves the Lease to others; five times as long as a standby needs to notice (`LeaseTimes.retry_s`).
A single replica takes it again, since one that fails still does better than none."""
SHUTDOWN_S = 4.0
"""Seconds for the release of the Lease; with the rest of the exit it stays under 10 s."""
LATE_EVENT_S, FORGOTTEN_S = 10.0, 120.0
"""How late an event may be before the watches are doubted, and how long one such object is kept in mind."""


def identity_of(settings: OperatorSettings) -> str:
    """Identity in the Lease: with a suffix of its own where the settings name one, as a file read by two processes."""
    is_named = "identity" in settings.model_fields_set
    return f"{settings.identity}_{uuid4().hex[:8]}" if is_named else settings.identity


def boot_time_s() -> float:
    """Clock that also counts while the machine is suspended, as the clocks of other candidates do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WatchedCluster(api_server.RequestListener):
    """Connection to the API server, the Lease, and all watches, in an event loop of their own."""

    def __init__(
        self,
        settings: OperatorSettings,
        registries: Registries,
        loops: Sequence[ControlLoop],
        meter: Meter,
        stack: ExitStack,
    ) -> None:
        """loops: their watches and facts join the others. stack: ends the watches, then releases the Lease."""
        self._loops, self._meter = loops, meter
        self._contradicted = ("", float("-inf"))
        """Path of an object that the API server has with another UID, and since when."""
        self.trigger = CycleTrigger()
        self.thread = connection.LoopThread("kubernetes")
        stack.callback(self.thread.close)
        foresee_requests(meter)
        access = credentials.ApiAccess(kubeconfig=settings.kubeconfig, context=settings.context)
        self.connection = self.thread.run(connection.connect(access, time.monotonic, self))
        stack.callback(lambda: self.thread.run_within(self.connection.close(), 1.0))
        self.leadership = leader_election.Leadership(
            self.connection,
            lease=(settings.lease.namespace, settings.lease.name),
            identity=identity_of(settings),
            clock=boot_time_s,
            wall_clock=time.time,
            rolled_back=self._watch_anew,
            # Without the fence nothing but time keeps what a leader sent before it died from coming after the next one.
            identity_at=leader_election.identity_at if settings.fenced else None,
        )
        changed = self.trigger.changed
        empty = observer.empty_caches(
            changed,
            with_devices=cached_view.allocates_claims(settings),
            kinds=registries.kinds,
            groups=cached_view.foreign_kinds_from(settings),
        )
        self.caches = replace(empty, ages=boot_time_s)
        deployments, failed, quotas = (
            Cache(cached_view.DEPLOYMENTS, changed),
            Cache(refusals.FAILED_PODS, changed),
            Cache(cached_view.QUOTAS, changed),
        )
        of_loops = (cache for each in loops for cache in each.caches)
        self._watched = (*self.caches.each, deployments, failed, quotas, *of_loops)
        self._watching = self.thread.begin(self._watch())
        stack.callback(lambda: self._watching.cancel())
        stack.callback(lambda: self.thread.run_within(self.leadership.release(), SHUTDOWN_S))
        stack.callback(self.thread.begin(self.leadership.campaign()).cancel)
        self.reservations = reservations.Reservations(time.monotonic, settings.release_deadline_s)
        self.observer = cached_view.observer_from(
            settings,
            self.caches,
            time.time,
            facts=registries.facts,
            reservations=self.reservations,
        )
        self.view = cached_view.CachedView(
            self.observer,
            deployments,
            completed=self._with_loops,
            failed=failed,
            quotas=quotas,
            reservations=self.reservations,
            labelled_only=settings.managed_namespaces == "labelled",
        )

    @property
    def epoch(self) -> int:
        """Epoch of the Lease."""
        return self.leadership.epoch

    def may_write(self) -> bool:
        """Whether this process holds the Lease."""
        return self.leadership.may_write()

    async def _watch(self) -> None:
        around = Watching(boot_time_s, asyncio.sleep, Random(), self._watch_anew)  # noqa: S311 - spreads reconnects
        await observer.follow(self._watched, self.connection, around)

    def _watch_anew(self) -> None:
        self._watching.cancel()
        for each in self._watched:
            each.start_over()
        self._watching = self.thread.begin(self._watch())

    async def listed_anew(self) -> None:
        """Begins to list everything anew; until that is done, the watches do not count as synced."""
        self._watch_anew()

    def fenced(self) -> None:
        """Counts a write that was refused because another process leads."""
        self._meter.count("tonnage_fenced_writes_total")

    def contradicted(self, path: str) -> None:
        """Lists everything anew where no event has corrected an object for `LATE_EVENT_S`.

        A watch that stood still while the store went back can miss what was made anew under versions that it knows.
        """
        now_s = boot_time_s()
        known, since_s = self._contradicted
        if path == known and now_s - since_s >= LATE_EVENT_S:
            log.error("the API server has other objects than were observed: all is read anew", object=path)
            self._contradicted = ("", float("-inf"))
            self._watch_anew()
        elif path != known and now_s - since_s >= FORGOTTEN_S:
            self._contradicted = (path, now_s)

    def is_synced(self) -> bool:
        """Whether every watch has listed its objects."""
        return all(cache.is_synced for cache in self._watched)

    def is_running(self, pod: str) -> bool:
        found = self.view.pod(pod)
        return found is not None and found.is_running

    def mistakes(self) -> tuple[Mistake, ...]:
        """Errors of the present objects; none where they cannot be observed, so that what was done is reported."""
        try:
            return self.observer.see().mistakes
        except ObservationError:
            return ()

    def step_down(self) -> None:
        """Leaves the Lease to others for `REST_S`."""
        self.thread.run(self.leadership.step_down(REST_S))

    def _with_loops(self, snapshot: Snapshot) -> Snapshot:
        for each in self._loops:
            snapshot = each.add_to(snapshot)
        for each in self._loops:
            each.seen = snapshot
        return snapshot

    def requested(self, request: ApiRequest) -> None:
        count_request(self._meter, request.verb, request.resource, request.status, request.for_s)


class ClusterWriter:
    """Writes plans to the cluster and reports on them, while this replica leads."""

    def __init__(self, settings: OperatorSettings, cluster: WatchedCluster, meter: Meter, stack: ExitStack) -> None:
        """stack: ends the writing of Events."""
        self._settings, self._cluster, self._meter, self._stack = settings, cluster, meter, stack
        self._applier = sender.Applier(cluster.connection, cluster)
        self._reports = replace(self._applier, concurrency=AT_A_TIME)
        self._events = Events(self._reports, cluster.view.uid, time.time, self.epoch, settings.identity)
        stack.callback(cluster.thread.begin(self._events.write()).cancel)
        self._fence = sender.Fence(cluster.connection, settings.lease.namespace, time.monotonic)
        self._sending: Future[int] = Future()
        self._sending.set_result(0)
        limits, routes = settings.autoscaler.config_maps, settings.routes
        self._statuses = StatusReports(
            cluster.observer, cluster.caches, cluster.is_running, limits=limits, routes=routes
        )
        self._planning = planning_view.PlanningView(
            cluster.view,
            cached_view.pools_from(settings),
            clock=time.monotonic,
            device_classes=cached_view.device_classes_from(settings),
            reservations=cluster.reservations,
            most_stops_per_seat=settings.limits.max_stops_per_seat,
            release_deadline_s=settings.release_deadline_s,
        )
        self.world = world.KubernetesWorld(
            self._planning,
            self._applier,
            cluster.thread.run,
            self,
            claims=cluster.observer.claims or NO_CLAIMS,
        )

    def epoch(self) -> int:
        """Epoch of the Lease, stamped on every write."""
        return self._cluster.epoch

    def fence(self) -> bool:
        """Waits until the API server refuses writes of earlier leaders; False when that cannot be achieved."""
        is_enforced = self._cluster.thread.run(self._fence.is_enforced(self.epoch()))
        if is_enforced:  # nothing that was sent before can still take effect, and new lists show what did
            self._planning.assumed.clear()
        return is_enforced

    def report(self, snapshot: Snapshot, plan: Plan, outcome: Outcome, generations: Mapping[str, int]) -> None:
        """Events and statuses of what was done. generations: of each service when the plan was made."""
        cluster, at_s = self._cluster, time.time()
        decisions = (
            *of_whole_services(decisions_of(plan, outcome, gangs_of(snapshot)), snapshot),
            *refusals_of(snapshot, cluster.mistakes(), plan),
        )
        cluster.thread.call(lambda: self._events.say(decisions))
        cluster.observer.log_devices()
        before = self._sending
        is_behind = not before.done()
        if not is_behind:
            jobs = list(self._statuses.jobs(snapshot, plan, outcome, generations, at_s))
            self._sending = cluster.thread.begin(self._send(jobs))
            is_behind = len(jobs) >= MOST_WRITES
            before.result()  # raises what a bug raised there: this cycle counts as failed
        if is_behind:
            self._sending.add_done_callback(self._ask_for_rest)

    async def _send(self, jobs: Sequence[sender.WriteJob]) -> int:
        """Writes statuses while the cycle goes on; returns how many. A later cycle makes anew what is not written."""
        answers = await self._reports.send(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, ActionError):
                log_unwritten(job.about, answer)
        return sum(not isinstance(answer, ActionError) for answer in answers)

    def _ask_for_rest(self, sent: "Future[int]") -> None:
        """Asks for a cycle that reports what had to wait, unless the API server takes no status now."""
        if not sent.cancelled() and not sent.exception() and sent.result():
            self._cluster.trigger.changed()

    def loop_context(self, background: Background) -> LoopContext:
        """What loops beside the cycle get at their start."""
        cluster = self._cluster
        return LoopContext(
            cluster.thread,
            cluster.connection,
            self._applier,
            cluster.leadership,
            cluster.caches,
            self._meter,
            LoopClocks(boot_time_s, time.time),
            cluster.trigger,
            background,
            self._settings.identity,
            self._stack,
        )
