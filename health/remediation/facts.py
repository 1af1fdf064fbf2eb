"""Situation: what is the case at one instant about jobs, nodes and budgets, as far as remediation needs it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

from health.verdicts.verdict import Cause, Part, Syndrome


class Origin(StrEnum):
    """Origin of evidence: a job may forge its own, nobody else's."""

    JOB = "job"
    """Records of the job's own processes."""
    NODE = "node"
    """Devices, kernel and host, read by the node agent."""
    NEIGHBOUR = "neighbour"
    """Another detector's condition or taint, such as node-problem-detector's."""


@dataclass(frozen=True, slots=True)
class NodeKey:
    """One node object: a replacement under the same name has another UID."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class FaultEvidence:
    """One observation. It may arrive twice, late, out of order, or never; `at_s` alone orders it."""

    job: str
    """`namespace/name` of the job that it was seen in; empty for evidence from a node without a job."""
    incarnation: str
    """The job's run that it was seen in: it dies with that run, where the job's records are its only source."""
    syndrome: Syndrome
    part: Part
    nodes: tuple[NodeKey, ...]
    """Nodes of the blamed ranks; both ends of a link, all members of a group."""
    pods: tuple[str, ...]
    """UIDs of the pods of the blamed ranks."""
    since_s: float
    """When the disturbance began."""
    at_s: float
    """When it was last seen. Both in seconds since the epoch, the controller's clock."""
    confidence: float
    """0..1, as in Verdict."""
    source: Origin = Origin.JOB
    slow_share: float = 0.0
    """Share of the job's speed that is lost, 0..1; 0 for a job that has stopped."""
    program_error: bool = False
    """An exception of the program came first: restarting the same nodes is enough."""
    cause: Cause | None = None
    """Explanation that is no fault."""
    probe: str = ""
    """Probe that would decide."""
    shown: tuple[str, ...] = ()
    """What the verdict rests on, for people."""
    over: bool = False
    """The disturbance has ended by itself, as of `at_s`."""
    after_job: bool = False
    """The job on the nodes may go on: they are taken out when it has ended."""


def node_fault(
    key: NodeKey, source: Origin, confidence: float, since_s: float, at_s: float, shown: str, *, after_job: bool = False
) -> FaultEvidence:
    """Evidence against a node by itself, whoever works on it."""
    return FaultEvidence(
        job="",
        incarnation="",
        syndrome=Syndrome.NONE,
        part=Part.NODE,
        nodes=(key,),
        pods=(),
        since_s=since_s,
        at_s=at_s,
        confidence=confidence,
        source=source,
        shown=(shown,),
        after_job=after_job,
    )


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One running or pending pod of a job."""

    uid: str
    node: str
    """Name of its node; empty while it is pending."""
    created_s: float
    gpus: int


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job with gang semantics: it makes progress with all of its ranks or with none."""

    name: str
    """`namespace/name`."""
    incarnation: str
    """Changes with every restart of the gang, in place or not."""
    started_s: float
    """When this run began: what was seen before is of no concern to it."""
    pods: tuple[PodFacts, ...]
    min_available: int
    """Pods without which it does not run; with fewer than all it goes on until others can join."""
    restart_s: float
    """From the stop of the gang to the first step on other nodes, without work that is done again."""
    in_place_restart_s: float
    """The same on the nodes it has: no pod is placed anew, images and caches are warm."""
    checkpoint_at_s: float
    """When its newest complete checkpoint was begun, in this run or in one before; its first start without any."""
    checkpoint_interval_s: float
    checkpoint_save_s: float = 0.0
    """Stall of the job per checkpoint."""
    saves_when_stopped: bool = False
    """Whether its pods save their work when they are told to end, so that a move need not wait for a checkpoint."""
    borrowable: int = 0
    """Nodes on which only work of lower priority runs that may be stopped: places as good as spare ones."""
    restarted_s: tuple[float, ...] = ()
    """Instants of its restarts in the last day, from the gang's status."""
    progressed_s: float = float("-inf")
    """Last time that it was seen to finish a step: a hang seen before that is over."""
    disruptions_allowed: int | None = None
    """Pods that its disruption budgets allow to be evicted now; None without a budget."""

    @property
    def gpus(self) -> int:
        return sum(pod.gpus for pod in self.pods)

    def at_risk_s(self, now_s: float) -> float:
        """Work of this run that a restart now would have to do again."""
        return max(now_s - max(self.checkpoint_at_s, self.started_s), 0.0)


@dataclass(frozen=True, slots=True)
class OurTaint:
    """Taint that Tonnage set: it names its incident, so that the incident can be rebuilt from it after a crash."""

    incident: str
    generation: int
    at_s: float
    on_probation: bool = False
    """The node takes work of low value only."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node."""

    key: NodeKey
    gpus: int = 8
    domains: tuple[str, ...] = ()
    """Failure domains that it is in, smallest first: `switch/leaf-3`, `rack/7`."""
    taint: OurTaint | None = None
    owner: str = ""
    """Another remediation that owns the node by its taint or label; ours waits for it."""
    ready: bool = True
    tested_s: float = float("-inf")
    """Last time the node passed its own test after a repair or in quarantine."""
    released_s: float = float("-inf")
    """Last time a person released it (`tonnage health release`)."""
    shared: bool = False
    """Pods of more than one job, or of none known, are on it."""
    own_speed_share: float = 1.0
    """Speed that Tonnage's own limits (watts, CPU quota) leave it, as a share of full speed."""
    limited_since_s: float = float("inf")
    """When these limits began."""


@dataclass(frozen=True, slots=True)
class Situation:
    """All facts at one instant."""

    now_s: float
    """Seconds since the epoch, the controller's clock."""
    jobs: Mapping[str, JobFacts] = field(default_factory=dict)
    """By name."""
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    """By name."""
    spares: tuple[str, ...] = ()
    """Names of healthy nodes that are free for a job at once."""
    heard_share: float = 1.0
    """Share of the expected heartbeats that arrive: an analyser that hears little blames nobody."""


AHEAD_S = 5.0
"""Most that evidence may be ahead of the controller's clock; a forged instant would outlive every closing."""


@dataclass(frozen=True, slots=True)
class RemedyPolicy:
    """Defaults are the proposals of docs/health.md; each is chosen unless a source is named."""

    job_quarantines: int = 2
    """Nodes taken from one job within `job_window_s`, or `cluster_share` of it where its records do not stand alone."""
    job_window_s: float = 1800.0
    cluster_share: float = 0.02
    """Share of all nodes taken out within `cluster_window_s`; one node is always allowed."""
    cluster_window_s: float = 600.0
    out_share: float = 0.10
    """Share of all nodes that may be out by our hand at any time; one node is always allowed."""
    domain_share: float = 0.25
    """Share of a failure domain's nodes that may be out by our hand; one node is always allowed."""
    domain_suspects: int = 2
    """Suspects in one failure domain within `domain_window_s` that make one domain incident."""
    domain_window_s: float = 120.0
    restarts: int = 3
    """Restarts of one job within `restart_window_s` without a checkpoint, from which on it is restarted in place before
    another node is taken from it; after twice as many, a person is asked."""
    restart_window_s: float = 3600.0
    heard_share: float = 0.9
    """Least share of heartbeats; below it nothing new is done."""
    confirm_s: float = 30.0
    """Time that a probe has to decide where a verdict leaves something open."""
    probation_s: float = 4 * 3600.0
    """Time of low-value work after a repair, before the node is trusted."""
    forget_s: float = 7 * 86_400.0
    """Time for which a closed incident counts against its node; 43 % of repeats come within 7 days (StepFun trace)."""
    avoid_s: float = 86_400.0
    """Time for which a job that has left nodes untainted, such as both ends of a link, is not placed on them again."""
    stale_s: float = 300.0
    """Age up to which evidence may open an incident."""
    innocent_out_s: float = 1800.0
    """Time that a healthy node spends in quarantine, test and release when it is taken out by mistake."""
    node_back_s: float = 20.4 * 3600.0
    """Time until a job that went on with fewer pods has its size again: the median repair of the StepFun trace."""
    remediate: bool = True
    """False: incidents are opened and costs shown, nothing is done."""


def is_relevant(evidence: FaultEvidence, situation: Situation, policy: RemedyPolicy) -> bool:
    """Whether evidence may change an incident."""
    now_s = situation.now_s
    if not now_s - policy.stale_s <= evidence.at_s <= now_s + AHEAD_S or evidence.since_s > evidence.at_s:
        return False
    if not all(key.name in situation.nodes and situation.nodes[key.name].key == key for key in evidence.nodes):
        return False
    if evidence.after_job and all(situation.nodes[key.name].released_s >= evidence.since_s for key in evidence.nodes):
        return False  # it is told for as long as it stands, and a person knows of it
    job = situation.jobs.get(evidence.job)
    if evidence.source is Origin.JOB:
        hears = situation.heard_share >= policy.heard_share
        return hears and job is not None and _is_of_this_run(evidence, job)
    return bool(evidence.nodes)


def _is_of_this_run(evidence: FaultEvidence, job: JobFacts) -> bool:
    """A job testifies about its own pods and the nodes under them, while they live."""
    pods = {pod.uid: pod for pod in job.pods}
    blamed = [pods[uid] for uid in evidence.pods if uid in pods]
    under = {pod.node for pod in blamed}
    return (
        evidence.incarnation == job.incarnation
        and evidence.at_s >= job.started_s
        and len(blamed) == len(evidence.pods)
        and all(evidence.at_s >= pod.created_s for pod in blamed)
        and all(key.name in under for key in evidence.nodes)
    )


_ONE_NODE = (Part.RANK, Part.NODE, Part.NIC)


def subject_of(evidence: FaultEvidence) -> str:
    """Id of the incident that evidence belongs to, from what it blames alone."""
    if evidence.part in _ONE_NODE and len(evidence.nodes) == 1:
        key = evidence.nodes[0]
        return _id("node", key.name, f"{key.name}/{key.uid}")
    if evidence.part in (Part.LINK, Part.GROUP) and evidence.nodes:
        keys = sorted(evidence.nodes, key=lambda key: key.name)
        return _id(str(evidence.part), keys[0].name, *(f"{key.name}/{key.uid}" for key in keys))
    return _id("job", evidence.job, evidence.job)


def domain_subject(domain: str) -> str:
    return _id("domain", domain, domain)


def _id(kind: str, shown: str, *whole: str) -> str:
    """A name that Kubernetes accepts: kind, a readable part, and a digest that tells subjects apart."""
    readable = re.sub(r"[^a-z0-9]+", "-", shown.lower()).strip("-")[:40].strip("-")
    return f"{kind}-{readable}-{sha256('|'.join((kind, *whole)).encode()).hexdigest()[:10]}"
