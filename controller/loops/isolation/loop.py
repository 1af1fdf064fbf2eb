"""Reporter of isolation: orders for the nodes, statuses of SandboxPolicies, Events about pods, and metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import msgspec
import structlog

from cluster.errors import ActionError, Mistake
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.sandbox_policy import KIND, SandboxPolicySpec
from controller.api.structs import OwnObject
from controller.kube.cache import Cache
from controller.kube.sender import Job, Sent
from controller.loops.isolation.coverage import SANDBOX_PODS, SandboxCourier, SandboxPod, coverage_of
from controller.loops.isolation.policy_status import (
    Happening,
    PolicyFacts,
    Seen,
    events_of,
    facts_of,
    happenings,
    samples_of,
    status_after,
)
from controller.loops.loop import Surroundings
from controller.metrics.registry import Meter
from controller.objects.own_objects import own_from, own_resource
from controller.objects.read import Read
from controller.report.events import AT_A_TIME, Events, ReportedDecision
from controller.report.service_status import status_write
from controller.settings import OperatorSettings
from isolation.state import Reason

log = structlog.get_logger(__name__)
EVERY_S = 1.0
KILLS = ("ToolCallKilled", "AgentKilled")
KILLED_FOR: tuple[Reason, ...] = (
    "OUTGREW_CLAIM",
    "HIGHER_PRIORITY_NEEDS_MEMORY",
    "AGENT_NEEDS_MEMORY",
    "NODE_SHORT_OF_MEMORY",
    "FROZEN_TOO_LONG",
    "RUNNER_WAITS_FOR_FROZEN_CALL",
)
"""Reasons of kills. Their counters begin at 0 with the policy, so that alerts see the first kill."""


class SandboxReporter:
    """Reports changes once a second. Belongs to the event loop of the Kubernetes connection."""

    def __init__(
        self,
        policies: Cache[OwnObject],
        pods: Cache[SandboxPod],
        courier: SandboxCourier,
        leads: Callable[[], bool],
        send: Callable[[Sequence[Job]], Awaitable[Sequence[Sent]]],
        say: Callable[[Iterable[ReportedDecision]], None],
        meter: Meter,
        wall_clock: Callable[[], float],
    ) -> None:
        self._policies, self._pods, self._courier, self._leads = policies, pods, courier, leads
        self._send, self._say, self._meter, self._wall_clock = send, say, meter, wall_clock
        self._seen = Seen()
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}
        """Policy → resourceVersion that the last write was based on, and the status written."""

    async def keep(self) -> None:
        """Reports for ever. An internal error is logged, and the next second tries again."""
        while True:
            try:
                await self.report()
            except Exception:
                log.exception("reporting isolation failed")
            await asyncio.sleep(EVERY_S)

    async def report(self) -> None:
        """Sets the orders and writes what changed, while this replica leads and has seen the cluster."""
        if not (self._leads() and self._policies.is_synced and self._pods.is_synced):
            self._courier.set_orders(None)
            self._meter.publish_sandboxes(())
            self._seen = Seen()
            return
        objects = dict(self._policies.all())
        specs, mistakes = _read(objects)
        coverage = coverage_of(specs, self._pods.all())
        self._courier.set_orders(coverage.orders())
        reports = self._courier.reports()
        self._tell(*happenings(coverage, reports, self._seen))
        facts = {name: facts_of(name, coverage, reports) for name in objects}
        for name, what, reason in product(objects, KILLS, KILLED_FOR):
            self._meter.count("tonnage_sandbox_happenings_total", name, what, reason, by=0)
        self._meter.publish_sandboxes(samples_of(facts, reports))
        await self._write(objects, mistakes, facts)

    def _tell(self, several: Sequence[Happening], seen: Seen) -> None:
        self._seen = seen
        self._say(events_of(several))
        for each in several:
            self._meter.count(
                "tonnage_sandbox_happenings_total", each.covered.policy, each.what, each.reason, by=each.count
            )

    async def _write(
        self,
        objects: Mapping[str, OwnObject],
        mistakes: Mapping[str, Sequence[Mistake]],
        facts: Mapping[str, PolicyFacts],
    ) -> None:
        jobs = list(self._jobs(objects, mistakes, facts))
        answers = await self._send([job for job, _, _ in jobs])
        for (_, obj, after), answer in zip(jobs, answers, strict=True):
            if isinstance(answer, ActionError):
                log.warning("a SandboxPolicy's status was not written", policy=obj.metadata.name, why=str(answer))
            else:
                self._written[obj.metadata.name] = (obj.metadata.resource_version, after)

    def _jobs(
        self,
        objects: Mapping[str, OwnObject],
        mistakes: Mapping[str, Sequence[Mistake]],
        facts: Mapping[str, PolicyFacts],
    ) -> Iterator[tuple[Job, OwnObject, dict[str, Any]]]:
        for name, obj in objects.items():
            if obj.metadata.deletion_timestamp:
                continue
            over, written = self._written.get(name, ("", {}))
            is_unseen = over == obj.metadata.resource_version  # the watch does not show the last write yet
            before: dict[str, Any] = written if is_unseen else msgspec.json.decode(obj.status)
            after = status_after(
                before, obj.metadata.generation, mistakes.get(name, ()), facts[name], self._wall_clock()
            )
            if after != before:
                yield Job(f"SandboxPolicy/{name}", status_write(KIND, name, obj.metadata.uid, after)), obj, after


def _read(
    objects: Mapping[str, OwnObject],
) -> tuple[dict[str, SandboxPolicySpec], dict[str, Sequence[Mistake]]]:
    """Specs that can be used, and the errors of the others."""
    specs: dict[str, SandboxPolicySpec] = {}
    mistakes: dict[str, Sequence[Mistake]] = {}
    for name, obj in objects.items():
        found = own_from(name, KIND, obj)
        if isinstance(found, Read):
            specs[name] = found.object.spec
        else:
            mistakes[name] = found
    return specs, mistakes


class IsolationPart:
    """Isolation as a part of the operator."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._identity = settings.identity
        self._policies = Cache(own_resource(KIND), lambda: None)
        self._pods = Cache(SANDBOX_PODS, lambda: None)

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return (self._policies, self._pods)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        return snapshot

    def learn(self, plan: Plan) -> None:
        """Nothing: no background decider works for it."""

    def probe(self) -> str | None:
        return None

    def start(self, around: Surroundings) -> dict[str, int]:
        """Gives the agents' link its courier, and reports while this replica leads."""
        leadership, clocks = around.leadership, around.clocks
        courier = SandboxCourier(clocks.monotonic, lambda: leadership.epoch)
        around.couriers.append(courier)
        quiet = replace(around.applier, concurrency=AT_A_TIME)

        def uid(kind: str, name: str) -> str | None:
            found = self._pods.get(name) if kind == "Pod" else None
            return found.metadata.uid if found else None

        events = Events(quiet, uid, clocks.wall, lambda: leadership.epoch, self._identity)
        around.stack.callback(around.loop.begin(events.write()))
        reporter = SandboxReporter(
            self._policies,
            self._pods,
            courier,
            leadership.may_write,
            quiet.send,
            events.say,
            around.meter,
            clocks.wall,
        )
        around.stack.callback(around.loop.begin(reporter.keep()))
        return {}


def enabled(settings: OperatorSettings) -> IsolationPart | None:
    """The part of isolation; None where the settings do not enable it."""
    return IsolationPart(settings) if settings.isolation.enabled else None
