"""Loop of isolation: orders for the nodes, statuses of SandboxPolicies, Events about pods, and metrics."""

from itertools import product
from typing import Any

from controller.api.sandbox_policy import KIND
from controller.api.structs import OwnObject
from controller.kube.cache import Cache
from controller.loops.isolation import policy_status
from controller.loops.isolation.coverage import SANDBOX_PODS, SandboxChannel, SandboxPod, coverage_of
from controller.loops.loop import ControlLoop, LoopContext, repeat, specs_in
from controller.objects.own_objects import own_resource
from controller.report.statuses import WrittenStatuses
from controller.settings import OperatorSettings
from isolation.state import Reason

EVERY_S = 1.0
KILLS = ("ToolCallKilled", "AgentKilled")
KILLED_FOR: tuple[Reason, ...] = (
    "OUTGREW_CLAIM",
    "HIGHER_PRIORITY_NEEDS_MEMORY",
    "AGENT_NEEDS_MEMORY",
    "FROZEN_TOO_LONG",
)
"""Reasons of kills. Their counters begin at 0 with the policy, so that alerts see the first kill."""


class IsolationLoop(ControlLoop):
    """Watches SandboxPolicies and the pods of agents, and orders the nodes over the agents' connections."""

    def __init__(self) -> None:
        self._policies, self._pods = Cache(own_resource(KIND)), Cache(SANDBOX_PODS)

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return (self._policies, self._pods)

    def start(self, context: LoopContext) -> dict[str, int]:
        """Opens its channel to the agents, and reports while this replica leads."""
        reporter = SandboxReporter(self._policies, self._pods, context)
        context.channels.append(reporter.channel)
        context.keep(repeat(reporter.report, EVERY_S, "reporting isolation failed"))
        return {}


class SandboxReporter:
    """Reports changes once a second. Belongs to the event loop of the Kubernetes connection."""

    def __init__(self, policies: Cache[OwnObject], pods: Cache[SandboxPod], context: LoopContext) -> None:
        self._policies, self._pods, self._context = policies, pods, context
        self.channel = SandboxChannel(context.clocks.monotonic, context.leadership)
        self._events = context.events_about("Pod", pods)
        self._seen = policy_status.Seen()
        self._written = WrittenStatuses()

    async def report(self) -> None:
        """Sets the orders and writes what changed, while this replica leads and has seen the cluster."""
        meter = self._context.meter
        if not (self._context.leadership.may_write() and self._policies.is_synced and self._pods.is_synced):
            self.channel.set_orders(None)
            meter.publish("sandboxes", ())
            self._seen = policy_status.Seen()
            return
        objects = self._policies.all()
        specs, mistakes = specs_in(KIND, objects)
        coverage = coverage_of(specs, self._pods.all())
        self.channel.set_orders(coverage.orders())
        reports = self.channel.reports()
        found, self._seen = policy_status.happenings(coverage, reports, self._seen)
        self._events.say(policy_status.events_of(found))
        for name, what, reason in product(objects, KILLS, KILLED_FOR):
            meter.count("tonnage_sandbox_happenings_total", name, what, reason, by=0)
        for each in found:
            meter.count("tonnage_sandbox_happenings_total", each.covered.policy, each.what, each.reason, by=each.count)
        facts = {name: policy_status.facts_of(name, coverage, reports) for name in objects}
        meter.publish("sandboxes", policy_status.samples_of(facts, reports))
        changed: dict[str, tuple[OwnObject, dict[str, Any]]] = {}
        for name, obj in objects.items():
            if not obj.metadata.deletion_timestamp:
                before, at_s = self._written.before(name, obj), self._context.clocks.wall()
                after = policy_status.status_after(
                    before, obj.metadata.generation, mistakes.get(name, ()), facts[name], at_s
                )
                if after != before:
                    changed[name] = obj, after
        await self._written.write(KIND, changed, self._context.reports_applier)


def enabled(settings: OperatorSettings) -> IsolationLoop | None:
    """The loop of isolation; None where the settings do not enable it."""
    return IsolationLoop() if settings.isolation.enabled else None
