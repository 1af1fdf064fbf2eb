"""Operator process: watches, leads or stands by, runs the loop, answers probes, and stops in order."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from random import Random
from threading import Event
from uuid import uuid4

import structlog

from cluster.errors import ObservationError
from cluster.snapshot import Snapshot
from controller.brain.from_settings import limits_from
from controller.cycle import run_cycle
from controller.guard import Limits
from controller.kube.cache import Cache
from controller.kube.cache import Surroundings as Watching
from controller.kube.connection import Connection, connect
from controller.kube.credentials import Access
from controller.kube.leader_election import Leadership
from controller.kube.loop_thread import LoopThread
from controller.kube.request import Request
from controller.kube.sender import Applier, Fence
from controller.kube_world.cached_view import (
    DEPLOYMENTS,
    QUOTAS,
    CachedView,
    allocates_claims,
    foreign_kinds_from,
    observer_from,
)
from controller.kube_world.observer import empty_caches, follow
from controller.kube_world.refusals import FAILED_PODS
from controller.kube_world.reservations import Reservations
from controller.loops.loop import Clocks, RunningPart, Surroundings
from controller.metrics.endpoint import metrics_endpoint
from controller.metrics.registry import Meter, count_request, foresee_requests
from controller.ports import Brain, World
from controller.process.probes import Recorder, probes_endpoint, recorder_of
from controller.process.registries import PRODUCT, Registries
from controller.process.wire_brain import OnRay, operators_brain
from controller.process.wire_world import kubernetes_world
from controller.report.cycle_reporter import CycleReporter
from controller.report.own_statuses import reports_on
from controller.report.scaling_status import PublishedLimits
from controller.settings import OperatorSettings

STUCK_AFTER_S = 120.0
"""Seconds without a pass of the loop after which the kubelet restarts the process. Twice the longest planning
deadline."""
FAILURES_IN_A_ROW = 3
"""Failed cycles in a row after which the process is not ready and leaves the Lease to another replica."""
REST_S = 10.0
"""Seconds that it leaves the Lease to others; five times as long as a standby needs to notice (`LeaseTimes.retry_s`).
A single replica takes it again, since one that fails still does better than none."""
POLL_S = 0.05
"""Seconds between two checks of the loop for work."""
SWITCH_S = 0.0005
"""Longest time that a thread computes before another gets its turn, in seconds. With Python's default of 5 ms, each
answer of the API server would wait that long while the main thread decides or logs: writes, and renewals of the
Lease, would be slow."""
SHUTDOWN_S = 4.0
"""Seconds for the release of the Lease; with the rest of the exit it stays under 10 s."""


class Heart:
    """State of the main thread for the probes: its heartbeat, and the cycles that failed in a row."""

    def __init__(self) -> None:
        self.failures = 0
        """Cycles that have failed by a bug since the last one that did not."""
        self.beat()

    def beat(self) -> None:
        self._beat_at_s = time.monotonic()

    def probe(self) -> str | None:
        still_s = time.monotonic() - self._beat_at_s
        return f"the loop has not completed a pass for {still_s:.0f} s" if still_s > STUCK_AFTER_S else None

    def readiness(self) -> str | None:
        """Problem that another replica may not have; None when there is none."""
        is_failing = self.failures >= FAILURES_IN_A_ROW
        return f"the last {self.failures} cycles failed: see the log" if is_failing else None


@dataclass(frozen=True, slots=True)
class Operator:
    """Running operator: all parts that the loop uses."""

    settings: OperatorSettings
    leadership: Leadership
    world: World
    brain: Brain
    reporter: CycleReporter
    heart: Heart
    changed: Event
    """Set whenever a watch has reported a change."""
    hurried: Event
    """Set when the next cycle should not wait until `interval_s` has passed."""
    is_synced: Callable[[], bool]
    fence: Callable[[], bool]
    """Waits until the API server refuses writes of earlier leaders; False when that cannot be achieved."""
    reservations: Reservations
    recorder: Recorder
    ray: OnRay | None
    """Brain on Ray, where there is one."""
    probe_port: int
    metrics_port: int
    step_down: Callable[[], None] = lambda: None
    """Leaves the Lease to others for `REST_S`."""
    parts: tuple[RunningPart, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    """Further ports, by the name of the part that listens there."""


def operate(
    settings: OperatorSettings,
    stop: Event,
    on_start: Callable[[Operator], None] = lambda _: None,
    registries: Registries = PRODUCT,
) -> None:
    """Run until `stop` is set. Raises ConfigError when it cannot start."""
    sys.setswitchinterval(SWITCH_S)
    with started(settings, registries) as operator:
        on_start(operator)
        run_loop(operator, stop)


@contextmanager
def started(settings: OperatorSettings, registries: Registries = PRODUCT) -> Iterator[Operator]:
    """The operator with all parts running. On leaving the block it stops writing, then releases the Lease."""
    with ExitStack() as stack:
        loop = LoopThread("kubernetes")
        stack.callback(loop.close)
        meter, changed, hurried, heart = Meter(), Event(), Event(), Heart()

        def hurry() -> None:
            hurried.set()
            changed.set()

        foresee_requests(meter)
        access = Access(kubeconfig=settings.kubeconfig, context=settings.context)
        connection = loop.run(connect(access, time.monotonic, lambda request: _count(meter, request)))
        stack.callback(lambda: loop.run_within(connection.close(), 1.0))
        leadership = _leadership(settings, connection)
        caches = empty_caches(
            changed.set,
            with_devices=allocates_claims(settings),
            kinds=registries.kinds,
            groups=foreign_kinds_from(settings),
        )
        deployments = Cache(DEPLOYMENTS, changed.set)
        parts = [running for part in registries.parts if (running := part.enabled(settings)) is not None]
        failed = Cache(FAILED_PODS, changed.set)
        quotas = Cache(QUOTAS, changed.set)
        everything = (*caches.each, deployments, failed, quotas, *(cache for part in parts for cache in part.caches))

        def is_synced() -> bool:
            return all(cache.is_synced for cache in everything)

        around = Watching(time.time, asyncio.sleep, Random())  # noqa: S311 - spreads reconnects, hides nothing
        stack.callback(loop.begin(follow(everything, connection, around)))
        stack.callback(lambda: loop.run_within(leadership.release(), SHUTDOWN_S))
        stack.callback(loop.begin(leadership.campaign()))
        reservations = Reservations(time.monotonic, settings.release_deadline_s)
        observer = observer_from(
            settings, caches, time.time, facts=registries.facts, is_guarded=lambda: reservations.is_guarded
        )

        def with_parts(snapshot: Snapshot) -> Snapshot:
            return reduce(lambda seen, part: part.add_to(seen), parts, snapshot)

        view = CachedView(
            observer,
            deployments,
            completed=with_parts,
            failed=failed,
            quotas=quotas,
            reservations=reservations,
            allocates_claims=allocates_claims(settings),
        )
        own_jobs = reports_on(
            observer,
            caches,
            lambda name: bool((pod := view.pod(name)) and pod.is_running),
            PublishedLimits() if settings.autoscaler.config_maps else None,
        )
        applier = Applier(
            connection, leadership.may_write, on_fenced=lambda: meter.count("tonnage_fenced_writes_total")
        )
        world = kubernetes_world(settings, loop, applier, leadership, view, observer, own_jobs, reservations, stack)
        clocks = Clocks(boot_time_s, time.time)
        surroundings = Surroundings(
            loop, connection, applier, leadership, caches, meter, clocks, changed.set, hurry, stack
        )
        ports = {name: port for part in parts for name, port in part.start(surroundings).items()}
        fence = Fence(connection, settings.lease.namespace, time.monotonic)
        brain, ray = operators_brain(settings, meter, leadership, registries.sections)
        if ray is not None:
            stack.callback(ray.brain.close)
        probes = {
            "/healthz": lambda: heart.probe() or next(filter(None, (part.probe() for part in parts)), None),
            "/readyz": lambda: heart.readiness() if is_synced() else "the watches are not synced yet",
        }
        recorder = recorder_of(settings)
        yield Operator(
            settings,
            leadership,
            world,
            brain,
            CycleReporter(meter, structlog.get_logger("cycle"), time.time),
            heart,
            changed,
            hurried,
            is_synced,
            lambda: loop.run(fence.is_enforced(leadership.epoch)),
            reservations,
            recorder,
            ray,
            probe_port=stack.enter_context(
                probes_endpoint(settings.host, settings.probe_port, probes, recorder.downloads)
            ),
            metrics_port=stack.enter_context(metrics_endpoint(meter, settings.host, settings.metrics_port)),
            step_down=lambda: loop.run(leadership.step_down(REST_S)),
            parts=tuple(parts),
            ports=ports,
        )


def run_loop(operator: Operator, stop: Event) -> None:
    """Runs cycles while this replica leads, until `stop`.

    A cycle runs when something changed, at most once in `interval_s`, and regularly without a change (`resync_s`).
    """
    settings = operator.settings
    term: int | None = None
    limits = limits_from(settings)
    next_at_s = 0.0
    while not stop.wait(POLL_S):
        operator.heart.beat()
        leads = operator.leadership.may_write()
        # The term, because another process may have led, and ended, while a cycle lasted.
        present = operator.leadership.epoch if leads else None
        if present != term:
            term, next_at_s = present, 0.0
            operator.reporter.report_leadership(leads=leads, epoch=operator.leadership.epoch)
            if leads:
                is_fenced = settings.fenced and operator.fence()
                operator.reservations.lead(is_guarded=is_fenced)
                if settings.fenced and not is_fenced:
                    operator.reporter.report_unfenced()
            if operator.ray is not None:
                operator.ray.lead(leads=leads)
                operator.ray.tell()
        now_s = time.monotonic()
        has_waited = operator.hurried.is_set() or now_s >= next_at_s - _patience_s(settings)
        is_due = now_s >= next_at_s or (operator.changed.is_set() and has_waited)
        if not leads or not operator.is_synced() or not is_due:
            continue
        operator.changed.clear()
        operator.hurried.clear()
        next_at_s = now_s + settings.resync_s
        _one_cycle(operator, limits)
        if operator.heart.failures and operator.heart.failures % FAILURES_IN_A_ROW == 0:
            operator.reporter.report_stepping_down(operator.heart.failures)
            operator.step_down()


def _patience_s(settings: OperatorSettings) -> float:
    """How many seconds before its resync a cycle may run when something changed."""
    return max(0.0, settings.resync_s - settings.interval_s)


def _one_cycle(operator: Operator, limits: Limits) -> None:
    deadline_s = operator.settings.plan_deadline_s
    try:
        cycle = run_cycle(operator.world, operator.brain, limits, deadline_s, time.monotonic)
    except ObservationError as error:
        operator.reporter.report_blind(error)
    except Exception as error:  # noqa: BLE001 - a bug in one cycle must not end the process that holds the Lease
        operator.heart.failures += 1
        operator.reporter.report_failed(error)
    else:
        operator.heart.failures = 0
        operator.reporter.report_cycle(cycle)
        operator.recorder.put(cycle)
        for part in operator.parts:
            part.learn(cycle.plan)
        if operator.ray is not None:
            operator.ray.tell()


def _leadership(settings: OperatorSettings, connection: Connection) -> Leadership:
    return Leadership(
        connection,
        namespace=settings.lease.namespace,
        name=settings.lease.name,
        identity=identity_of(settings),
        clock=boot_time_s,
        wall_clock=time.time,
    )


def identity_of(settings: OperatorSettings) -> str:
    """Identity in the Lease: with a suffix of its own where the settings name one, as a file read by two processes."""
    is_named = "identity" in settings.model_fields_set
    return f"{settings.identity}_{uuid4().hex[:8]}" if is_named else settings.identity


def boot_time_s() -> float:
    """Clock that also counts while the machine is suspended, as the clocks of other candidates do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _count(meter: Meter, request: Request) -> None:
    count_request(meter, request.verb, request.resource, request.status, request.for_s)
