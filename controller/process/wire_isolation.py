"""Wiring of isolation: watches SandboxPolicies and the pods of agents, and sends orders over the agents' link."""

from dataclasses import replace
from typing import Any

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.sandbox_policy import KIND
from controller.kube.cache import Cache
from controller.objects.own_objects import own_resource
from controller.parts.isolation.courier import SandboxCourier
from controller.parts.isolation.pods import SANDBOX_PODS
from controller.parts.isolation.reporter import SandboxReporter
from controller.process.part import Surroundings
from controller.report.events import AT_A_TIME, Events
from controller.settings import OperatorSettings


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
