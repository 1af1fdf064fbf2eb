"""Mailbox between the agents' link and the analysis: reports of health, the oldest of each node
dropped first, and orders back.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from threading import Event, Lock
from typing import Any

import structlog

from cluster.errors import ConfigError, Mistake
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.fault_incident import KIND as INCIDENT
from controller.api.health_policy import KIND as POLICY
from controller.api.health_policy import HealthPolicySpec
from controller.deciders.remediation import HealthFacts, HealthOutcome
from controller.kube.cache import Cache
from controller.kube.request import KubeReadError
from controller.kube_world.observer import Caches
from controller.loops.health.analyser_process import BySize
from controller.loops.health.members import EVERY_S as BUDGETS_EVERY_S
from controller.loops.health.members import allowed_disruptions, gangs_of_others, members_from
from controller.loops.health.reporter import HealthReporter, Reported, incident_in, samples_of
from controller.loops.health.situation import (
    JobHistory,
    controls_among,
    evidence_of,
    own_limits,
    rules_from,
    situation_of,
    tainted_devices,
)
from controller.loops.health.stream import HealthStream
from controller.loops.loop import Surroundings
from controller.objects.own_objects import own_from, own_resource
from controller.objects.read import Read
from controller.report.events import AT_A_TIME
from controller.settings import OperatorSettings
from health.analysis.waits import is_stack
from health.records.frames import PROBE_KIND, REPORT_KIND
from health.remediation.incidents import Act, Incident, JobIntent

MOST_BYTES = 64 * 1024 * 1024
"""Two seconds of 10,000 ranks at 100 operations a second."""
MOST_OF_NODE = 4 * 1024 * 1024
"""What may wait of one node: what eighty times as busy ranks as above write on a node of eight. An agent that floods
displaces its own reports, and none of others."""


class ReportMailbox:
    """Courier on the agents' link. Two threads use it: the link's, and that of the analysis."""

    sends, hears = PROBE_KIND, REPORT_KIND

    def __init__(self, most_bytes: int = MOST_BYTES, most_of_node: int = MOST_OF_NODE) -> None:
        self._most, self._most_of_node = most_bytes, most_of_node
        self._bytes = 0
        self._waiting: dict[str, deque[tuple[int, bytes]]] = {}
        """Reports by node, each with its number."""
        self._bytes_of: dict[str, int] = {}
        self._number = 0
        self._lock = Lock()
        self.arrived = Event()
        self.dropped = 0
        self._orders: Mapping[str, bytes] = {}

    def set_orders(self, orders: Mapping[str, bytes]) -> None:
        """Orders for probes by node, as of now; a node without one gets nothing."""
        self._orders = orders

    def mail_for(self, node: str) -> bytes | None:
        """Order for a node that has just reported."""
        return self._orders.get(node)

    def heard(self, node: str, text: bytes) -> str:
        """Adds a report of this node; never refuses one, since the analysis reads it."""
        with self._lock:
            self._number += 1
            self._waiting.setdefault(node, deque()).append((self._number, text))
            self._count(node, len(text))
            while self._bytes_of[node] > self._most_of_node:
                self._drop(node)
            while self._bytes > self._most:
                self._drop(max(self._bytes_of, key=self._bytes_of.__getitem__))
        self.arrived.set()
        return ""

    def take(self) -> tuple[tuple[str, bytes], ...]:
        """Everything that has arrived, in order: node and report."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._bytes, self._bytes_of = 0, {}
            self.arrived.clear()
        taken = sorted((number, node, text) for node, each in waiting.items() for number, text in each)
        return tuple((node, text) for _, node, text in taken)

    def _count(self, node: str, more: int) -> None:
        self._bytes += more
        self._bytes_of[node] = self._bytes_of.get(node, 0) + more

    def _drop(self, node: str) -> None:
        _, text = self._waiting[node].popleft()
        self._count(node, -len(text))
        self.dropped += 1


log = structlog.get_logger(__name__)
TURN_S = 0.1
"""Longest pause between two judgements; a hang is judged 3 s after its last exit, so this adds little."""
FOLLOW_S = 0.5
STUCK_S = 60.0
REPORT_S = 0.25
DAY_S = 86_400.0


class HealthPart:
    """Health as a part of the operator. Its stream belongs to a thread of its own; `_lock` guards it."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._policies, self._objects = (Cache(own_resource(kind), lambda: None) for kind in (POLICY, INCIDENT))
        self._stream, self._lock = HealthStream(BySize()), threading.Lock()
        self._incidents: Mapping[str, Incident] = {}
        """Incidents as this leader knows them, which the API server may not show yet."""
        self._jobs: dict[str, tuple[str, ...]] = {}
        """Jobs that each incident has disturbed."""
        self._prices: dict[str, JobIntent] = {}
        """Last alternatives of each incident."""
        self._history: dict[str, JobHistory] = {}
        self._runs: dict[str, str] = {}
        self._gang_of: Mapping[str, str] = {}
        """Gang of each pod of other projects' kinds, as of the last snapshot."""
        self._given: HealthFacts | None = None
        self._awaited: tuple[Act, ...] = ()
        """Decisions that the API server did not show yet when the last plan was made."""
        self._reported: Reported | None = None
        self._around: Surroundings | None = None
        self._followed_s = float("-inf")
        self._turned_s = float("inf")
        self._stop = threading.Event()

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return (self._policies, self._objects)

    def start(self, around: Surroundings) -> dict[str, int]:
        """Analyses and reports until the end."""
        self._around = around
        self._turned_s = around.clocks.monotonic()
        mailbox = ReportMailbox()
        around.couriers.append(mailbox)
        thread = threading.Thread(target=self._run, args=(mailbox,), name="health", daemon=True)
        thread.start()
        around.stack.callback(self._stop.set)
        reporter = HealthReporter(
            self._objects,
            self._policies,
            around.caches.nodes,
            replace(around.applier, concurrency=AT_A_TIME).send,
            around.clocks.wall,
        )
        around.stack.callback(around.loop.begin(self._report(reporter)))
        around.stack.callback(around.loop.begin(self._read_budgets()))
        return {}

    def probe(self) -> str | None:
        if self._around is None:
            return None
        still_s = self._around.clocks.monotonic() - self._turned_s
        return f"the analysis of health has made no progress for {still_s:.0f} s" if still_s > STUCK_S else None

    # The loop's thread.

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what remediation decides from; unchanged without a policy."""
        specs = self._specs()
        if self._around is None or not specs:
            return snapshot
        nodes, now_s = self._around.caches.nodes.all(), self._around.clocks.wall()
        rules = rules_from(specs, nodes)
        self._gang_of = gangs_of_others(snapshot)
        with self._lock:
            if snapshot.power is not None:
                self._stream.limits = own_limits(snapshot.power, self._stream.limits, now_s)
            situation = situation_of(
                snapshot, nodes, specs, rules, self._stream, lambda job: self._history.get(job, JobHistory()), now_s
            )
            self._stream.governed = frozenset(node for rule in rules for node in rule.nodes)
            self._stream.controls = controls_among(self._stream.governed, situation, self._known().values())
            evidence = (*self._stream.verdicts, *self._stream.node_evidence(now_s))
            pods = {member.uid: member.name for member in self._stream.members.by_uid.values()}
        slices = self._around.caches.devices.slices.all() if self._around.caches.devices is not None else {}
        tainted = tainted_devices(slices.values())
        neighbours = (
            each
            for rule in rules
            for node in sorted(rule.nodes)
            for each in evidence_of(nodes[node], specs[rule.name], now_s, tainted.get(node, {}))
        )
        recorded = tuple(each.act for each in self._stored().values() if each.act is not None)
        facts = HealthFacts(situation, (*evidence, *neighbours), tuple(self._known().values()), recorded, rules, pods)
        self._given = facts
        return replace(snapshot, health=facts)

    def learn(self, plan: Plan) -> None:
        """Takes the incidents as the plan leaves them."""
        outcome, given = plan.health, self._given
        if not isinstance(outcome, HealthOutcome) or given is None:
            return
        self._incidents = {incident.id: incident for incident in outcome.incidents}
        self._jobs = {
            incident.id: tuple(dict.fromkeys((*self._jobs.get(incident.id, ()), *(run.job for run in incident.runs))))
            for incident in outcome.incidents
        }
        acts = {each.act for each in outcome.incidents if each.runs and each.act is not None}
        self._awaited = tuple(acts.difference(given.recorded))
        self._prices.update({intent.incident: intent for intent in outcome.jobs})
        kept = {name: each for name, each in self._prices.items() if name in self._incidents}
        self._prices = kept
        reported = replace(outcome, jobs=tuple(kept.values()))
        self._reported = Reported(reported, given.situation, given.rules, self._jobs)

    def _known(self) -> dict[str, Incident]:
        """Incidents of this leader, and those that only the API server has: another leader's."""
        return {**self._stored(), **self._incidents}

    def _stored(self) -> dict[str, Incident]:
        """Incidents as the API server shows them."""
        return {name: found for name, obj in self._objects.all().items() if (found := incident_in(obj)) is not None}

    def _specs(self) -> dict[str, HealthPolicySpec]:
        read = {name: own_from(name, POLICY, obj) for name, obj in self._policies.all().items()}
        return {name: each.object.spec for name, each in read.items() if isinstance(each, Read)}

    # The thread of the analysis.

    def _run(self, mailbox: ReportMailbox) -> None:
        while not self._stop.is_set():
            mailbox.arrived.wait(TURN_S)
            try:
                self._turn(mailbox)
            except Exception:
                log.exception("a turn of the analysis of health failed")
            self._stop.wait(0.02)

    def _turn(self, mailbox: ReportMailbox) -> None:
        around = self._around
        if around is None:
            return
        self._turned_s = around.clocks.monotonic()
        if not around.leadership.may_write():
            with self._lock:
                self._stream = HealthStream(BySize())
            self._incidents, self._jobs, self._reported, self._history, self._runs = {}, {}, None, {}, {}
            mailbox.take()
            return
        now_s = around.clocks.wall()
        with self._lock:
            if self._turned_s - self._followed_s >= FOLLOW_S:
                self._followed_s = self._turned_s
                self._follow(around.caches, now_s)
            before = self._stream.node_evidence(now_s)
            for node, body in mailbox.take():
                self._stream.take(node, body, now_s)
            found = self._stream.judge(now_s)
            mailbox.set_orders(self._stream.probing.orders)
            probed = dict(self._stream.probing.answered)
            news = bool(found) or len(self._stream.node_evidence(now_s)) > len(before) or self._is_recorded()
            counted, refused = dict(self._stream.judged), dict(self._stream.refused)
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
        around.meter.publish_health(samples_of(self._reported, counted, refused, probed, mailbox.dropped))
        if news:
            around.hurry()

    def _is_recorded(self) -> bool:
        """Whether the API server shows by now a decision whose restart waited for that."""
        for act in self._awaited:
            obj = self._objects.get(act.incident)
            if obj is not None and (found := incident_in(obj)) is not None and found.act == act:
                self._awaited = ()
                return True
        return False

    def _follow(self, caches: Caches, now_s: float) -> None:
        nodes = caches.nodes.all()
        members = members_from(caches.pods.all(), nodes, self._gang_of)
        self._stream.follow(members, {name: node.metadata.uid for name, node in nodes.items()})
        for job in members.jobs:
            run, before = members.incarnation(job), self._runs.get(job)
            history = self._history.get(job, JobHistory())
            if before is not None and run != before:
                recent = (each for each in (*history.restarted_s, now_s) if now_s - each <= DAY_S)
                self._history[job] = replace(history, restarted_s=tuple(recent))
            self._runs[job] = run

    # The event loop of the connection.

    async def _report(self, reporter: HealthReporter) -> None:
        """Reports for ever. An internal error is logged, and the next turn tries again."""
        while True:
            await asyncio.sleep(REPORT_S)
            reported = self._reported
            if reported is None or self._around is None or not self._around.leadership.may_write():
                continue
            try:
                await reporter.report(reported)
            except Exception:
                log.exception("reporting health failed")

    async def _read_budgets(self) -> None:
        while True:
            around = self._around
            if around is not None and around.leadership.may_write():
                with self._lock:
                    members = self._stream.members
                try:
                    allowed = await allowed_disruptions(around.connection, members)
                except KubeReadError as error:
                    log.warning("disruption budgets cannot be read", why=str(error))
                else:
                    with self._lock:
                        for job in members.jobs:
                            history = self._history.get(job, JobHistory())
                            self._history[job] = replace(history, disruptions_allowed=allowed.get(job))
            await asyncio.sleep(BUDGETS_EVERY_S)


def enabled(settings: OperatorSettings) -> HealthPart | None:
    """The part of health; None where the settings do not enable it. Raises ConfigError without a port for agents."""
    if not settings.health.enabled:
        return None
    if not settings.power.enabled:
        raise ConfigError(
            Mistake("health.enabled", "agents connect to the port of power control", "set power.enabled as well")
        )
    return HealthPart(settings)
