"""Loop of health: reports of agents in, facts for each cycle, incidents and conditions out."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from cluster.errors import ConfigError, Mistake
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.fault_incident import KIND as INCIDENT
from controller.api.health_policy import KIND as POLICY, HealthPolicySpec
from controller.api.structs import Node, OwnObject
from controller.deciders.remediation import HealthFacts, HealthOutcome, HealthRules
from controller.kube.cache import Cache
from controller.loops.health import situation as health_situation
from controller.loops.health.analyser_process import BySize
from controller.loops.health.members import gangs_of_others, members_from, tried_only
from controller.loops.health.reporter import HealthReporter, Reported, incident_in, samples_of
from controller.loops.health.stream import HealthStream
from controller.loops.loop import ControlLoop, LoopContext, repeat, specs_in
from controller.objects.own_objects import own_resource
from controller.settings import OperatorSettings
from health.analysis.last_words import is_stack
from health.records.frames import PROBE_KIND, REPORT_KIND, Backlog
from health.remediation.facts import FaultEvidence, Situation
from health.remediation.incidents import Act, Incident
from health.verdicts.findings import Severity

log = structlog.get_logger(__name__)
MOST_BYTES = 64 * 1024 * 1024
"""Two seconds of 10,000 ranks at 100 operations a second."""
MOST_OF_NODE = 4 * 1024 * 1024
"""What may wait of one node: what eighty times as busy ranks as above write on a node of eight. An agent that floods
displaces its own reports, and none of others."""
TURN_S = 0.1
"""Longest pause between two judgements; a hang is judged 3 s after its last exit, so this adds little."""
FOLLOW_S = 0.5
STUCK_S = 60.0
REPORT_S = 0.25
DAY_S = 86_400.0


class ReportQueue(Backlog):
    """Reports of health from the agents' connections, and orders back.

    Two threads use it: the connections', and that of the analysis.
    """

    sends, receives = PROBE_KIND, REPORT_KIND

    def __init__(self, most_bytes: int = MOST_BYTES, most_of_node: int = MOST_OF_NODE) -> None:
        super().__init__(threading.Lock(), most_bytes, most_of_node)
        self.arrived = threading.Event()
        self._orders: Mapping[str, bytes] = {}

    def set_orders(self, orders: Mapping[str, bytes]) -> None:
        """Orders for probes by node, as of now; a node without one gets nothing."""
        self._orders = orders

    def message_to(self, node: str) -> bytes | None:
        """Order for a node that has just reported."""
        return self._orders.get(node)

    def receive(self, node: str, text: bytes) -> str:
        """Adds a report of this node; never refuses one, since the analysis reads it."""
        self.add(node, text)
        self.arrived.set()
        return ""


class IncidentRecords:
    """Incidents as this leader knows them, which the API server may not show yet, and what it reports of them.

    Values are replaced whole, so any thread may read them.
    """

    def __init__(self, objects: Cache[OwnObject]) -> None:
        self._objects = objects
        self.clear()

    def clear(self) -> None:
        """Forgets everything, as a replica that no longer leads does."""
        self._incidents: Mapping[str, Incident] = {}
        self._awaited: tuple[Act, ...] = ()
        """Decisions that the API server did not show yet when the last plan was made."""
        self.reported: Reported | None = None

    def stored(self) -> dict[str, Incident]:
        """Incidents as the API server shows them."""
        return {name: found for name, obj in self._objects.all().items() if (found := incident_in(obj)) is not None}

    def known(self) -> dict[str, Incident]:
        """Incidents of this leader, and those that only the API server has: another leader's."""
        return {**self.stored(), **self._incidents}

    def learn(self, outcome: HealthOutcome, given: HealthFacts) -> None:
        """Takes the incidents as a plan leaves them. given: what it was made from."""
        self._incidents = {incident.id: incident for incident in outcome.incidents}
        acts = {each.act for each in outcome.incidents if each.runs and each.act is not None}
        self._awaited = tuple(acts.difference(given.recorded))
        self.reported = Reported(outcome, given.situation, given.rules)

    def take_recorded(self) -> bool:
        """Whether the API server shows by now a decision whose restart waited for that."""
        for act in self._awaited:
            obj = self._objects.get(act.incident)
            if obj is not None and (found := incident_in(obj)) is not None and found.act == act:
                self._awaited = ()
                return True
        return False


class HealthAnalysis:
    """Judges the reports of agents while this replica leads, in a thread of its own. `_lock` guards its state."""

    def __init__(self, context: LoopContext, records: IncidentRecords) -> None:
        self._context, self._records = context, records
        self.queue = ReportQueue()
        self._stream, self._lock = HealthStream(BySize()), threading.Lock()
        self._restarted_s: dict[str, tuple[float, ...]] = {}
        """Instants of each job's restarts in the last day."""
        self._runs: dict[str, str] = {}
        """Last run of each job."""
        self._gang_of: Mapping[str, str] = {}
        """Gang of each pod of other projects' kinds, as of the last snapshot."""
        self._followed_s = float("-inf")
        self._turned_s = context.clocks.monotonic()
        self._stop = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="health", daemon=True).start()
        self._context.stack.callback(self._stop.set)

    def probe(self) -> str | None:
        """Why it has to be restarted; None while it runs."""
        still_s = self._context.clocks.monotonic() - self._turned_s
        return f"the analysis of health has made no progress for {still_s:.0f} s" if still_s > STUCK_S else None

    def judged(
        self,
        snapshot: Snapshot,
        nodes: Mapping[str, Node],
        specs: Mapping[str, HealthPolicySpec],
        rules: tuple[HealthRules, ...],
        now_s: float,
    ) -> tuple[Situation, tuple[FaultEvidence, ...], dict[str, str]]:
        """The situation now, all evidence, and the names of jobs' pods by UID. specs: by the policy's name."""
        self._gang_of = gangs_of_others(snapshot)
        with self._lock:
            stream = self._stream
            if snapshot.power is not None:
                stream.limits = health_situation.own_limits(snapshot.power, stream.limits, now_s)
            situation = health_situation.situation_of(snapshot, nodes, specs, rules, stream, self._restarted_s, now_s)
            stream.governed = frozenset(node for rule in rules for node in rule.nodes)
            stream.severities = {
                node: {each.code: Severity(each.severity) for each in chosen}
                for rule in rules
                if (chosen := specs[rule.name].findings)
                for node in rule.nodes
            }
            stream.controls = health_situation.controls_among(
                stream.governed, situation, self._records.known().values()
            )
            evidence = (*stream.verdicts, *stream.node_evidence(now_s))
            pods = {member.uid: member.name for member in stream.members.by_uid.values()}
        return situation, evidence, pods

    def _run(self) -> None:
        while not self._stop.is_set():
            self.queue.arrived.wait(TURN_S)
            try:
                self._turn()
            except Exception:
                log.exception("a turn of the analysis of health failed")
            self._stop.wait(0.02)

    def _turn(self) -> None:
        context, queue = self._context, self.queue
        self._turned_s, now_s = context.clocks.monotonic(), context.clocks.wall()
        queue.arrived.clear()
        if not context.leadership.may_write():
            with self._lock:
                self._stream = HealthStream(BySize())
                self._restarted_s, self._runs = {}, {}
            self._records.clear()
            queue.take()
            return
        with self._lock:
            stream = self._stream
            if self._turned_s - self._followed_s >= FOLLOW_S:
                self._followed_s = self._turned_s
                nodes = context.caches.nodes.all()
                members = members_from(context.caches.pods.all(), nodes, self._gang_of)
                stream.follow(members, {name: node.metadata.uid for name, node in nodes.items()})
                for job in members.jobs:
                    run, before = members.incarnation(job), self._runs.get(job)
                    if before is not None and run != before:
                        known_s = (*self._restarted_s.get(job, ()), now_s)
                        self._restarted_s[job] = tuple(each_s for each_s in known_s if now_s - each_s <= DAY_S)
                    self._runs[job] = run
            heard = stream.node_evidence(now_s)
            for node, body in queue.take():
                stream.take(node, body, now_s)
            found = stream.judge(now_s)
            queue.set_orders(stream.probing.orders)
            probed = dict(stream.probing.answered)
            has_news = len(stream.node_evidence(now_s)) > len(heard)
            counted, refused = dict(stream.judged), dict(stream.refused)
        for each in found:
            log.info(
                "verdict on a job",
                job=each.job,
                syndrome=str(each.syndrome),
                part=str(each.part),
                nodes=[key.name for key in each.nodes],
                cause=str(each.cause or ""),
                probe=each.probe,
                why="; ".join(one for one in each.shown if not is_stack(one)),
            )
        context.meter.publish("health", samples_of(self._records.reported, counted, refused, probed, queue.dropped))
        if found or has_news or self._records.take_recorded():
            context.trigger.hurry()


class HealthLoop(ControlLoop):
    """Applies HealthPolicies to what the analysis finds."""

    def __init__(self) -> None:
        self._policies, self._objects = Cache(own_resource(POLICY)), Cache(own_resource(INCIDENT))
        self._records = IncidentRecords(self._objects)
        self._running: tuple[LoopContext, HealthAnalysis] | None = None
        """None before the start."""
        self._given: HealthFacts | None = None

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return (self._policies, self._objects)

    def start(self, context: LoopContext) -> dict[str, int]:
        """Analyses and reports until the end."""
        analysis = HealthAnalysis(context, self._records)
        context.channels.append(analysis.queue)
        analysis.start()
        self._running = context, analysis
        caches = (self._objects, self._policies, context.caches.nodes)
        reporter = HealthReporter(*caches, context.reports_applier, context.clocks.wall)

        async def report() -> None:
            reported = self._records.reported
            if reported is not None and context.leadership.may_write():
                await reporter.report(reported)

        context.keep(repeat(report, REPORT_S, "reporting health failed"))
        return {}

    def probe(self) -> str | None:
        return self._running[1].probe() if self._running is not None else None

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what remediation decides from; unchanged without a policy."""
        specs, _ = specs_in(POLICY, self._policies.all())
        if self._running is None or not specs:
            return snapshot
        context, analysis = self._running
        nodes, now_s = context.caches.nodes.all(), context.clocks.wall()
        rules = health_situation.rules_from(specs, nodes)
        situation, evidence, pods = analysis.judged(snapshot, nodes, specs, rules, now_s)
        slices = context.caches.devices.slices.all() if context.caches.devices is not None else {}
        tainted = health_situation.tainted_devices(slices.values())
        of_others = (
            each
            for rule in rules
            for node in sorted(rule.nodes)
            for each in health_situation.evidence_of(nodes[node], specs[rule.name], now_s, tainted.get(node, {}))
        )
        recorded = tuple(each.act for each in self._records.stored().values() if each.act is not None)
        known = tuple(self._records.known().values())
        facts = HealthFacts(situation, (*evidence, *of_others), known, recorded, rules, pods)
        self._given = facts
        asked = [(each, ask_s) for each in rules if each.policy.remediate and (ask_s := specs[each.name].preflight)]
        return replace(tried_only(snapshot, context.caches.pods.all(), asked) if asked else snapshot, health=facts)

    def learn(self, plan: Plan) -> None:
        """Takes the incidents as the plan leaves them."""
        if isinstance(plan.health, HealthOutcome) and self._given is not None:
            self._records.learn(plan.health, self._given)


def enabled(settings: OperatorSettings) -> HealthLoop | None:
    """The loop of health; None where the settings do not enable it. Raises ConfigError without a port for agents."""
    if not settings.health.enabled:
        return None
    if not settings.power.enabled:
        raise ConfigError(
            Mistake("health.enabled", "agents connect to the port of power control", "set power.enabled as well")
        )
    return HealthLoop()
