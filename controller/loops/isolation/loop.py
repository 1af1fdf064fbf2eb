"""Loop of isolation: orders for the nodes, statuses of SandboxPolicies, Events about pods, and metrics."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, get_args

from cluster.errors import Mistake
from cluster.plans import Reason
from controller.api.conditions import READY, Claim, conditions_after
from controller.api.sandbox_policy import KIND, MOST_TROUBLES, SandboxPolicyStatus, SandboxTrouble
from controller.api.structs import OwnObject
from controller.kube.cache import Cache
from controller.loops.isolation.coverage import SANDBOX_PODS, Coverage, Covered, SandboxChannel, SandboxPod, coverage_of
from controller.loops.loop import ControlLoop, LoopContext, repeat, specs_in
from controller.metrics.registry import Sample
from controller.objects.own_objects import own_resource
from controller.report.events import ReportedDecision
from controller.report.statuses import WrittenStatuses, accepted
from controller.settings import OperatorSettings
from isolation.orders import IsolationReport, SandboxReport
from isolation.state import ADVICE, Reason as IsolationReason

WORDS: Mapping[str, str] = {
    "ToolCallKilled": "a tool call was killed",
    "AgentKilled": "the agent was killed, after all tool calls",
    "Frozen": "a tool call was frozen",
    "Refused": "a tool call was not admitted",
}
"""What may happen, with its words in an Event."""
REASONS = frozenset(get_args(IsolationReason))
"""Codes that a node may report; others are dropped, so that no node can invent series and texts."""
CALL_STATES = ("running", "queued", "frozen")
REPORTED = ("ToolCallKilled", "AgentKilled", "Frozen")
"""Happenings with an Event. A refused call is its agent's own affair, and counts in the metrics."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """State of one policy's pods."""

    reports: tuple[SandboxReport, ...] = ()
    """Of those under control."""
    troubles: tuple[SandboxTrouble, ...] = ()
    """The others, and why."""

    @property
    def selected(self) -> int:
        return len(self.reports) + len(self.troubles)

    def total(self, figure: str) -> int:
        return sum(getattr(each, figure) for each in self.reports)


@dataclass(frozen=True, slots=True)
class Happening:
    """What happened to tool calls of a pod since the last look."""

    covered: Covered
    what: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Seen:
    """Counts of earlier reports. The first report of a node's session is what later ones are compared with."""

    counts: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """(node's session, pod's UID, `what/reason`) → count, of newest sessions."""
    lives: Mapping[str, str] = field(default_factory=dict)
    """Newest session that was heard of each node."""


def facts_of(policy: str, coverage: Coverage, reports: Mapping[str, IsolationReport]) -> PolicyFacts:
    """State of one policy's pods, by the reports of their nodes."""
    under: list[SandboxReport] = []
    troubles: list[SandboxTrouble] = []
    for covered in coverage.of_policy(policy):
        report = report_of(covered, reports)
        if isinstance(report, str):
            troubles.append(SandboxTrouble(pod=covered.pod, node=covered.node, message=report[:512]))
        else:
            under.append(report)
    return PolicyFacts(tuple(under), tuple(troubles))


def report_of(covered: Covered, reports: Mapping[str, IsolationReport]) -> SandboxReport | str:
    """Report on a pod, or why there is none."""
    node = reports.get(covered.node)
    if covered.order is None:
        return "its container does not run yet"
    if node is None:
        return "no node agent with isolation reports from its node"
    if node.level != "full":
        return f"its node allows isolation at level {node.level}: {node.why}"
    report = node.sandboxes.get(covered.uid)
    if report is None:
        return "its node has not taken it over yet"
    return report.trouble or report


def happenings(
    coverage: Coverage, reports: Mapping[str, IsolationReport], seen: Seen
) -> tuple[tuple[Happening, ...], Seen]:
    """What happened since the last look. A session that is heard from for the first time, as by a new leader, repeats
    nothing.
    """
    lives = {**seen.lives, **{node: report.life for node, report in reports.items()}}
    newest = set(lives.values())
    counts = {key: count for key, count in seen.counts.items() if key[1] in coverage.pods and key[0] in newest}
    found: list[Happening] = []
    for node, report in reports.items():
        is_known = seen.lives.get(node) == report.life
        for uid, sandbox in report.sandboxes.items():
            covered = coverage.pods.get(uid)
            if covered is None or covered.node != node:
                continue  # a node speaks for its own pods only
            for key, count in sandbox.happened.items():
                what, _, reason = key.partition("/")
                if what not in WORDS or reason not in REASONS:
                    continue  # nor is it remembered: a node may invent as many as it likes
                counts[report.life, uid, key] = count
                more = count - seen.counts.get((report.life, uid, key), 0)
                if more > 0 and is_known:
                    found.append(Happening(covered, what, reason, more))
    return tuple(found), Seen(counts, lives)


def events_of(several: Sequence[Happening]) -> Iterator[ReportedDecision]:
    """Events about pods."""
    for each in several:
        if each.what in REPORTED:
            advice = next((text for code, text in ADVICE.items() if code == each.reason), "")
            times = f"{each.count} times: " if each.count > 1 else ""
            words = f"{times}{WORDS[each.what]} ({each.reason})" + (f"; {advice}" if advice else "")
            is_warning = each.what in ("ToolCallKilled", "AgentKilled")
            reason = Reason(each.reason, words)
            yield ReportedDecision("Pod", each.covered.pod, "Isolating", reason, is_warning=is_warning, event=each.what)


def status_after(
    before: Mapping[str, Any], generation: int, mistakes: Sequence[Mistake], facts: PolicyFacts, at_s: float
) -> dict[str, Any]:
    """The status as plain data; equal to `before` where nothing changed."""
    old = SandboxPolicyStatus.read(before)
    ready: Claim
    if mistakes:
        ready = (READY, *accepted(mistakes)[1:])
    elif not facts.selected:
        ready = (READY, "True", Reason("NoPods", "no running pod is selected"))
    elif facts.troubles:
        first = facts.troubles[0]
        words = f"{len(facts.troubles)} of {facts.selected} pods are not under control; {first.pod}: {first.message}"
        ready = (READY, "False", Reason("NotControlled", words))
    else:
        ready = (READY, "True", Reason("Controlled", f"all {facts.selected} pods are under control"))
    claims = (accepted(mistakes), ready)
    conditions = conditions_after(old.conditions, claims, generation=generation, at_s=at_s)
    return old.model_copy(
        update={
            "observed_generation": generation,
            "conditions": conditions,
            "selected": facts.selected,
            "controlled": len(facts.reports),
            **{state: facts.total(state) for state in CALL_STATES},
            "troubles": facts.troubles[:MOST_TROUBLES],
        }
    ).plain()


def samples_of(facts: Mapping[str, PolicyFacts], reports: Mapping[str, IsolationReport]) -> Iterator[Sample]:
    """Gauges by policy, and of the nodes."""
    for policy, each in facts.items():
        yield Sample("tonnage_sandboxes", (policy, "controlled"), len(each.reports))
        yield Sample("tonnage_sandboxes", (policy, "uncontrolled"), len(each.troubles))
        for state in CALL_STATES:
            yield Sample("tonnage_sandbox_calls", (policy, state), each.total(state))
        yield Sample("tonnage_sandbox_memory_bytes", (policy, "agents"), each.total("agent_bytes"))
        yield Sample("tonnage_sandbox_memory_bytes", (policy, "calls"), each.total("calls_bytes"))
    levels = Counter(report.level for report in reports.values())
    for level in ("full", "observe", "none"):
        yield Sample("tonnage_sandbox_nodes", (level,), levels[level])
    yield Sample("tonnage_sandbox_node_bytes", ("budget",), sum(each.budget_bytes for each in reports.values()))
    yield Sample("tonnage_sandbox_node_bytes", ("reserved",), sum(each.reserved_bytes for each in reports.values()))


EVERY_S = 1.0
KILLS = ("ToolCallKilled", "AgentKilled")
KILLED_FOR: tuple[IsolationReason, ...] = (
    "OUTGREW_CLAIM",
    "HIGHER_PRIORITY_NEEDS_MEMORY",
    "AGENT_NEEDS_MEMORY",
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
        self._seen = Seen()
        self._written = WrittenStatuses()

    async def report(self) -> None:
        """Sets the orders and writes what changed, while this replica leads and has seen the cluster."""
        meter = self._context.meter
        if not (self._context.leadership.may_write() and self._policies.is_synced and self._pods.is_synced):
            self.channel.set_orders(None)
            meter.publish("sandboxes", ())
            self._seen = Seen()
            return
        objects = self._policies.all()
        specs, mistakes = specs_in(KIND, objects)
        coverage = coverage_of(specs, self._pods.all())
        self.channel.set_orders(coverage.orders())
        reports = self.channel.reports()
        found, self._seen = happenings(coverage, reports, self._seen)
        self._events.say(events_of(found))
        for name, what, reason in product(objects, KILLS, KILLED_FOR):
            meter.count("tonnage_sandbox_happenings_total", name, what, reason, by=0)
        for each in found:
            meter.count("tonnage_sandbox_happenings_total", each.covered.policy, each.what, each.reason, by=each.count)
        facts = {name: facts_of(name, coverage, reports) for name in objects}
        meter.publish("sandboxes", samples_of(facts, reports))
        changed: dict[str, tuple[OwnObject, dict[str, Any]]] = {}
        for name, obj in objects.items():
            if not obj.metadata.deletion_timestamp:
                before, at_s = self._written.before(name, obj), self._context.clocks.wall()
                after = status_after(before, obj.metadata.generation, mistakes.get(name, ()), facts[name], at_s)
                if after != before:
                    changed[name] = obj, after
        await self._written.write(KIND, changed, self._context.reports_applier)


def enabled(settings: OperatorSettings) -> IsolationLoop | None:
    """The loop of isolation; None where the settings do not enable it."""
    return IsolationLoop() if settings.isolation.enabled else None
