"""Wiring of Kubernetes as the operator's world: what it observes, what it writes, and what it reports."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from cluster.errors import ActionError, Mistake, ObservationError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.kube.leader_election import Leadership
from controller.kube.loop_thread import LoopThread
from controller.kube.sender import Applier
from controller.kube_world.cached_view import CachedView, device_classes_from, pools_from
from controller.kube_world.observer import Observer
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.reservations import Reservations
from controller.kube_world.world import KubernetesWorld
from controller.ports import Outcome
from controller.report.events import AT_A_TIME, Events, decisions_of, gangs_of, refusals_of
from controller.report.own_statuses import OwnJobs
from controller.report.service_status import log_unwritten, status_jobs
from controller.settings import OperatorSettings


def kubernetes_world(
    settings: OperatorSettings,
    loop: LoopThread,
    applier: Applier,
    leadership: Leadership,
    view: CachedView,
    observer: Observer,
    own_jobs: OwnJobs,
    reservations: Reservations,
    stack: ExitStack,
) -> KubernetesWorld:
    quiet = replace(applier, concurrency=AT_A_TIME)
    events = Events(quiet, view.uid, time.time, lambda: leadership.epoch, settings.identity)
    stack.callback(loop.begin(events.write()))

    def tell(snapshot: Snapshot, plan: Plan, outcome: Outcome, generations: Mapping[str, int]) -> None:
        decisions = (
            *decisions_of(plan, outcome, gangs_of(snapshot)),
            *refusals_of(snapshot, mistakes_now(observer), plan),
        )
        loop.call(lambda: events.say(decisions))
        at_s = time.time()
        jobs = [
            *status_jobs(view, snapshot, plan, outcome, generations, at_s),
            *own_jobs(snapshot, plan, at_s),
        ]
        for answer in loop.run(quiet.send(jobs)):
            if isinstance(answer, ActionError):
                log_unwritten(answer)
        observer.log_devices()

    planning = PlanningView(
        view,
        pools_from(settings),
        clock=time.monotonic,
        device_classes=device_classes_from(settings),
        reservations=reservations,
    )
    return KubernetesWorld(planning, applier, loop.run, epoch=lambda: leadership.epoch, report=tell, claims=observer)


def mistakes_now(observer: Observer) -> tuple[Mistake, ...]:
    """Errors of the present objects; none where they cannot be observed, so that what was done is reported anyway."""
    try:
        return observer.see().mistakes
    except ObservationError:
        return ()
