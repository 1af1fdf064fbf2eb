"""Stream of health: agents' reports in, evidence about jobs and nodes out. For one thread at a time.

What a pod writes counts for ranks of its own gang alone, and only over the connection of the node that the API server
has it on; what an agent reports counts for its own node alone.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from cluster.errors import UNREADABLE
from controller.loops.health.analyser_process import AnalyserError, Analysis, AnalysisOf
from controller.loops.health.job_stream import JobStream, RankSeat, facts_on
from controller.loops.health.members import Members
from controller.loops.health.probing import Host, Probing, is_elsewhere
from health.probing import question_of
from health.records import frames as reports
from health.records.frames import ProbeAddress
from health.records.layout import Layout
from health.remediation.facts import FaultEvidence, NodeKey, Origin, node_fault
from health.stream import Analyser, bytes_for
from health.verdicts.findings import Severity, fact_kind_of, is_hardware, is_instant, is_plausible, severity_of
from health.verdicts.verdict import SLOW, Fact, FactKind, JobVerdict, Part, Syndrome

log = structlog.get_logger(__name__)
SHARE = 0.5
"""Part of the container's memory: the rest of the operator took 0.3 GB with 20,000 pods on 2,000 nodes."""
WITHOUT_LIMIT_BYTES = 2 << 30
LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Limit of the own container, as the kernel states it inside of one."""
KEPT_S = 300.0
"""Age up to which evidence is handed on: that up to which it may open an incident."""
PAUSE_S = 60.0
"""Time for which a job is left out whose records the analysis could not bear, or for which there was no memory."""
WEIGHED_S = 1.0
"""Pause between two looks at the memory that all jobs take."""
_OF_RANKS = {"RankLost": Syndrome.DEAD_PROCESS, "RankBehind": Syndrome.OTHER_HANG}
"""Findings about ranks of a job whose records nobody sends."""
HEARD_S = 10.0
"""Silence after which an agent counts as not heard; it reports every 5 s at least."""


def analysis_bytes(limit: Path = LIMIT) -> int:
    """Memory that the analysis of all jobs may take."""
    try:
        found = limit.read_text().strip()
    except OSError:
        found = "max"
    return int(SHARE * int(found)) if found.isdecimal() else WITHOUT_LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class OwnLimit:
    """Speed that Tonnage's own power caps leave a node."""

    speed_share: float
    since_s: float


class _NoMemoryError(AnalyserError):
    """There is no memory for the analysis of a job."""


@dataclass(slots=True)
class HealthStream:
    """State of the analysis of all jobs."""

    analysis_of: AnalysisOf = Analyser
    """Begins the analysis of a job's run, in this process or in another."""
    members: Members = field(default_factory=Members)
    node_uids: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, OwnLimit] = field(default_factory=dict)
    """Own limits by node; nodes without one are left out."""
    jobs: dict[str, JobStream] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    verdicts: tuple[FaultEvidence, ...] = ()
    """Evidence from jobs' records that is not older than KEPT_S."""
    refused: Counter[str] = field(default_factory=Counter)
    """Reports and parts of them that were not taken, by cause."""
    judged: Counter[str] = field(default_factory=Counter)
    """Verdicts since the start, by syndrome or cause."""
    probing: Probing = field(default_factory=Probing)
    may_be_sent_to: Callable[[ProbeAddress], bool] = is_elsewhere
    """Whether agents may be sent to an address that another one names as its own."""
    governed: frozenset[str] = frozenset()
    """Nodes that policies govern: pair probes use no others."""
    controls: frozenset[str] = frozenset()
    """Those of them that nothing speaks against."""
    severities: Mapping[str, Mapping[str, Severity]] = field(default_factory=dict)
    """What operators have chosen for findings, by node and code."""
    most_bytes: int = field(default_factory=analysis_bytes)
    """Memory that the analysis of all jobs may take."""
    _paused_s: dict[str, float] = field(default_factory=dict)
    _judged_s: float = -math.inf
    _weighed_s: float = -math.inf
    _saved_s: dict[str, float] = field(default_factory=dict)
    """Newest checkpoint of each job's earlier runs."""

    def follow(self, members: Members, node_uids: Mapping[str, str]) -> None:
        """Takes note of pods and nodes: a job whose pods have changed begins another run."""
        self.members, self.node_uids = members, node_uids
        for name in [name for name in self.jobs if members.incarnation(name) != self.jobs[name].incarnation]:
            self._saved_s[name] = self.jobs.pop(name).checkpoint_s
        self._saved_s = {name: at_s for name, at_s in self._saved_s.items() if name in members.jobs}
        self.hosts = {node: host for node, host in self.hosts.items() if node in node_uids}
        self._paused_s = {name: until_s for name, until_s in self._paused_s.items() if name in members.jobs}
        self.probing.forget({job: members.incarnation(job) for job in members.jobs})

    def take(self, node: str, body: bytes, now_s: float) -> None:
        """A report that arrived over the connection of this node."""
        try:
            report = reports.report_in(body)
        except UNREADABLE:
            self.refused["unreadable"] += 1
            return
        host = self.hosts.get(node, Host(now_s))
        if report.node != node or (report.life == host.life and report.sequence <= host.sequence):
            self.refused["replayed"] += 1
            return
        host = replace(
            host,
            heard_s=now_s,
            life=report.life,
            sequence=report.sequence,
            probes_at=report.probes_at if report.probes_at and self.may_be_sent_to(report.probes_at) else None,
        )
        if report.evidence is not None:
            found = [each for each in report.evidence[: reports.MOST_EVIDENCE] if is_plausible(each)]
            if lost := len(report.evidence) - len(found):
                self.refused["implausible"] += lost
            # As of now where it is of the future: instants of other nodes are compared with the agent's own.
            aged = tuple(each if each.age_s >= 0 else replace(each, age_s=0.0) for each in found)
            host = replace(host, evidence=aged, at_s=now_s)
        self.hosts[node] = host
        measured = [
            each
            for each in report.probed
            if all(map(math.isfinite, (each.age_s, each.rtt_s, each.out_bytes_per_s, each.in_bytes_per_s)))
        ]
        self.probing.take(node, measured, now_s)
        for pod, frames in report.frames.items():
            member = self.members.by_uid.get(pod)
            if member is None or member.node != node:
                self.refused["not a member here"] += 1
            elif self._paused_s.get(member.job, now_s) <= now_s:
                with self._bearing(member.job, now_s) as stream:
                    stream.take(member.uid, member.node, frames, now_s)

    def judge(self, now_s: float) -> tuple[FaultEvidence, ...]:
        """New evidence from jobs' records."""
        self._judged_s = now_s
        if abs(now_s - self._weighed_s) >= WEIGHED_S:
            self._weighed_s = now_s
            self._make_room({})
        of_rank = self._facts(now_s)
        own_speed = {node: limit.speed_share for node, limit in self.limits.items()}
        found: list[FaultEvidence] = []
        for name, stream in tuple(self.jobs.items()):
            if name not in self.jobs:
                continue  # it was left out to make room for another
            facts = (*facts_on(stream.seats, of_rank), *self._own_caps(stream.seats))
            with self._bearing(name, now_s):
                for verdict in stream.judge(now_s, facts):
                    self.judged[str(verdict.cause or verdict.syndrome)] += 1
                    found.append(self._evidence(stream, verdict, now_s))
                    self._probe(stream, verdict, found[-1], now_s)
                if lost := stream.newly_lost():
                    self.refused["not analysed in time"] += lost
                if stream.refused:
                    self.refused["another pod's rank"] += stream.refused
                    stream.refused = 0
                for verdict in stream.ended(now_s):
                    evidence = self._evidence(stream, verdict, now_s)
                    found.append(replace(evidence, over=True, shown=("it is as fast as before",)))
            for verdict, seats in stream.preflight.verdicts(now_s, own_speed):
                found.append(self._evidence(stream, verdict, now_s, seats))
        if not self.probing.is_idle:
            under_jobs = self._nodes_under_jobs()
            clean = [node for node in sorted(self.controls) if self.is_clean(node, now_s)]
            # Agents under jobs report several times a second, so that their orders arrive at once.
            trusted = sorted(clean, key=lambda node: node not in under_jobs)
            found += self.probing.turn(self.hosts, trusted, self.node_uids, now_s)
        self.verdicts = tuple(each for each in (*self.verdicts, *found) if now_s - each.at_s <= KEPT_S)
        return tuple(found)

    @contextmanager
    def _bearing(self, name: str, now_s: float) -> Iterator[JobStream]:
        """A step of one job's analysis; a job that breaks it is left out for a while, and no other suffers."""
        stream = self.jobs.get(name)
        if stream is None:
            stream = JobStream(name, self.members.incarnation(name), partial(self._begin_analysis, name))
            self.jobs[name] = stream
            stream.checkpoint_s = self._saved_s.get(name, stream.checkpoint_s)
        try:
            yield stream
        except Exception as error:  # records are written by the job, which may write anything
            if isinstance(error, AnalyserError):
                log.warning("the analysis of a job ended", job=name, why=str(error))
            else:
                log.exception("a job's records could not be analysed", job=name)
            self._leave_out(name, "no memory" if isinstance(error, _NoMemoryError) else "not analysable", now_s)

    def _begin_analysis(self, job: str, layout: Layout) -> Analysis:
        """The analysis of a job's run, if there is memory for it. Raises AnalyserError."""
        needed = bytes_for(layout)
        if job in self._make_room({job: needed}):
            raise _NoMemoryError(self._no_memory(needed))
        return self.analysis_of(layout)

    def _make_room(self, more: Mapping[str, int]) -> tuple[str, ...]:
        """Leaves out jobs until the others fit in memory, together with `more` of some; those that are left out."""
        held = {name: stream.held_bytes + more.get(name, 0) for name, stream in self.jobs.items()}
        out = left_out(held, self.most_bytes)
        for name in out:
            if name not in more:
                log.warning("the analysis of a job ended", job=name, why=self._no_memory(held[name]))
                self._leave_out(name, "no memory", self._judged_s)
        return out

    def _no_memory(self, needed: int) -> str:
        most_mb = self.most_bytes // 1_000_000
        return f"it needs {needed // 1_000_000} MB of the {most_mb} MB for all jobs; raise the operator's memory limit"

    def _leave_out(self, name: str, cause: str, now_s: float) -> None:
        self.refused[cause] += 1
        self._paused_s[name] = now_s + PAUSE_S
        del self.jobs[name]

    def _probe(self, stream: JobStream, verdict: JobVerdict, evidence: FaultEvidence, now_s: float) -> None:
        """Has a suspected fault of the network probed, where policies govern its nodes."""
        layout = stream.layout
        question = question_of(verdict, layout, stream.nodes) if layout is not None else None
        if question is None or not {key.name for key in evidence.nodes} <= self.governed:
            return
        pods: dict[str, tuple[str, ...]] = {}
        for seat in (stream.seats[rank] for rank in verdict.ranks):
            pods[seat.node] = _distinct((*pods.get(seat.node, ()), seat.pod))
        self.probing.ask(question, evidence, pods, now_s)

    def _nodes_under_jobs(self) -> set[str]:
        return {seat.node for stream in self.jobs.values() for seat in stream.seats.values()}

    def heard_share(self, now_s: float) -> float:
        """Share of the nodes under analysed jobs whose agents are heard. One silent node is not counted: it may be the
        fault that is looked for, and in a small fleet one is many."""
        nodes = self._nodes_under_jobs()
        heard = sum(node in self.hosts and now_s - self.hosts[node].heard_s <= HEARD_S for node in nodes)
        return min(heard + 1, len(nodes)) / len(nodes) if nodes else 1.0

    def node_evidence(self, now_s: float) -> tuple[FaultEvidence, ...]:
        """Evidence of nodes themselves, whoever works on them."""
        found: list[FaultEvidence] = []
        for node, host in sorted(self.hosts.items()):
            if now_s - host.heard_s > KEPT_S or node not in self.node_uids:
                continue
            key = NodeKey(node, self.node_uids[node])
            for each in host.evidence:
                severity, since_s = severity_of(each.code, self.severities.get(node)), host.at_s - each.age_s
                if each.code in _OF_RANKS:
                    found += self._of_ranks(key, each, since_s, host.at_s)
                after_job = severity is Severity.AFTER_JOB
                if severity is Severity.NOW or after_job:
                    # What waits for a job's end counts for as long as its agent tells of it.
                    at_s = since_s if not after_job and is_instant(each) else host.at_s
                    found.append(node_fault(key, Origin.NODE, 0.9, since_s, at_s, _words(each), after_job=after_job))
        return tuple(found)

    def _of_ranks(self, key: NodeKey, found: reports.Evidence, since_s: float, at_s: float) -> Iterator[FaultEvidence]:
        """What NCCL tells a node's agent about ranks there: a word of the one job that is on the node."""
        mine = [each for each in self.members.by_uid.values() if each.node == key.name]
        jobs = {each.job for each in mine}
        stream = self.jobs.get(mine[0].job) if len(jobs) == 1 else None
        is_recorded = stream is not None and stream.layout is not None  # a recorder knows more
        if len(jobs) != 1 or is_recorded or since_s < max(each.created_s for each in mine):  # told of an earlier run
            return
        yield FaultEvidence(
            job=mine[0].job,
            incarnation=self.members.incarnation(mine[0].job),
            syndrome=_OF_RANKS[found.code],
            part=Part.RANK,
            nodes=(key,),
            pods=tuple(each.uid for each in mine),
            since_s=since_s,
            at_s=at_s,
            confidence=0.8,
            shown=(_words(found),),
        )

    def is_clean(self, node: str, now_s: float) -> bool:
        """Whether the node's agent is heard and finds no fault of hardware, nor any in the kernel's log."""
        host = self.hosts.get(node)
        if host is None or now_s - host.heard_s > HEARD_S:
            return False
        return not any(is_hardware(each, self.severities.get(node)) for each in host.evidence)

    def _facts(self, now_s: float) -> dict[tuple[str, int], list[Fact]]:
        """Facts that agents know about ranks, by pod and rank: of their processes, and of the nodes under them."""
        of_node: dict[str, list[tuple[FactKind, reports.Evidence, float]]] = {}
        for node, host in self.hosts.items():
            for each in host.evidence if now_s - host.heard_s <= HEARD_S else ():
                if (kind := fact_kind_of(each.code)) is not None:
                    of_node.setdefault(node, []).append((kind, each, host.at_s - each.age_s))
        made: dict[tuple[str, int], list[Fact]] = {}
        if not of_node:
            return made
        for rank, seat in ((rank, seat) for stream in self.jobs.values() for rank, seat in stream.seats.items()):
            for kind, each, since_s in of_node.get(seat.node, ()):
                if each.rank < 0 or (each.pod, each.rank) == (seat.pod, rank):
                    made.setdefault((seat.pod, rank), []).append(Fact(kind, rank, since_s, each.speed_share))
        return made

    def _own_caps(self, seats: Mapping[int, RankSeat]) -> tuple[Fact, ...]:
        return tuple(
            Fact(FactKind.POWER_CAP, rank, limit.since_s, limit.speed_share)
            for rank, seat in (seats.items() if self.limits else ())
            if (limit := self.limits.get(seat.node)) is not None
        )

    def _evidence(
        self, stream: JobStream, verdict: JobVerdict, now_s: float, seats: Sequence[RankSeat] | None = None
    ) -> FaultEvidence:
        """seats: of its ranks, where these are not training's."""
        if seats is None:
            seats = [stream.seats[rank] for rank in verdict.ranks if rank in stream.seats]
        is_slow = verdict.syndrome in SLOW
        return FaultEvidence(
            job=stream.job,
            incarnation=stream.incarnation,
            syndrome=verdict.syndrome,
            part=verdict.part,
            nodes=tuple(NodeKey(node, self.node_uids.get(node, "")) for node in _distinct(seat.node for seat in seats)),
            pods=_distinct(seat.pod for seat in seats),
            since_s=verdict.since_s if now_s - 3600 <= verdict.since_s <= now_s else now_s,
            at_s=now_s,
            confidence=verdict.confidence,
            source=Origin.JOB,
            slow_share=stream.pace.lost_share() if is_slow else 0.0,
            cause=verdict.cause,
            probe=verdict.probe,
            shown=(*verdict.evidence, *(self._watched(seats, now_s) if verdict.blames else ())),
            program_error=verdict.program_error,
        )

    def _watched(self, seats: Sequence[RankSeat], now_s: float) -> Iterator[str]:
        """What agents find on the nodes of blamed ranks that asks for nothing by itself, for people."""
        for node in _distinct(seat.node for seat in seats):
            host = self.hosts.get(node)
            for found in host.evidence if host is not None and now_s - host.heard_s <= HEARD_S else ():
                if found.rank < 0 and severity_of(found.code, self.severities.get(node)) is Severity.WATCH:
                    yield f"{node}: {_words(found)}"


def _words(found: reports.Evidence) -> str:
    return f"{found.code} on {found.subject}: {found.words}"[:200]


def left_out(held: Mapping[str, int], most_bytes: int) -> tuple[str, ...]:
    """Jobs (`namespace/name`) without which the others fit: again and again the largest of the namespace that holds
    most, so that one namespace's jobs displace no other's that are smaller together.

    held: memory of each.
    """
    of: Counter[str] = Counter()
    jobs: dict[str, list[tuple[int, str]]] = {}
    for job, size in held.items():
        namespace = job.partition("/")[0]
        of[namespace] += size
        jobs.setdefault(namespace, []).append((size, job))
    for each in jobs.values():
        each.sort()
    found, over = list[str](), of.total() - most_bytes
    while over > 0:
        namespace = max(of, key=lambda each: (of[each], each))
        size, job = jobs[namespace].pop()
        found.append(job)
        of[namespace] -= size
        over -= size
    return tuple(found)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
