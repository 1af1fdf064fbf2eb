"""A pretend fleet for remediation: it carries intents out, checks what must never happen, and shows the effect."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from health.remediation.decision import HealthDecision, decide
from health.remediation.facts import (
    FaultEvidence,
    JobFacts,
    NodeFacts,
    NodeKey,
    Origin,
    OurTaint,
    PodFacts,
    RemedyPolicy,
    Situation,
)
from health.remediation.incidents import Incident, IncidentPhase, JobDo, JobIntent, NodeDo, NodeIntent
from health.verdicts.verdict import Part, Syndrome

START_S = 1_000_000.0


def node(name: str, *, uid: str = "", domains: tuple[str, ...] = (), **facts: object) -> NodeFacts:
    return replace(NodeFacts(NodeKey(name, uid or f"uid-{name}"), domains=domains), **facts)


def job(name: str, nodes: Sequence[str], **facts: object) -> JobFacts:
    """A gang with one pod of eight GPUs on each node, started and checkpointed at START_S."""
    pods = tuple(PodFacts(f"{name}-0-{index}", on, START_S, 8) for index, on in enumerate(nodes))
    made = JobFacts(
        name=name,
        incarnation=f"{name}-0",
        started_s=START_S,
        pods=pods,
        min_available=len(pods),
        restart_s=180.0,
        in_place_restart_s=60.0,
        checkpoint_at_s=START_S,
        checkpoint_interval_s=600.0,
    )
    return replace(made, **facts)


def evidence(on: JobFacts, *nodes: str, at_s: float, **facts: object) -> FaultEvidence:
    """A hang of the ranks on these nodes, as the job's records show it."""
    made = FaultEvidence(
        job=on.name,
        incarnation=on.incarnation,
        syndrome=Syndrome.OTHER_HANG,
        part=Part.RANK,
        nodes=tuple(NodeKey(name, f"uid-{name}") for name in nodes),
        pods=tuple(pod.uid for pod in on.pods if pod.node in nodes),
        since_s=at_s - 3.0,
        at_s=at_s,
        confidence=0.95,
        shown=("12 ranks wait for it, it waits for none",),
    )
    return replace(made, **facts)


def slow(on: JobFacts, *nodes: str, at_s: float, since_s: float, share: float = 0.3, **facts: object) -> FaultEvidence:
    found = evidence(on, *nodes, at_s=at_s, since_s=since_s, syndrome=Syndrome.OTHER_SLOW, slow_share=share)
    return replace(found, **facts)


@dataclass
class PretendFleet:
    """Nodes, jobs and the incidents that were written last."""

    nodes: dict[str, NodeFacts]
    jobs: dict[str, JobFacts]
    policy: RemedyPolicy = field(default_factory=RemedyPolicy)
    now_s: float = START_S
    incidents: tuple[Incident, ...] = ()
    broken: set[str] = field(default_factory=set)
    """Nodes that do not pass their test."""
    restarts: list[JobIntent] = field(default_factory=list)
    heard_share: float = 1.0

    def situation(self) -> Situation:
        used = {pod.node for each in self.jobs.values() for pod in each.pods}
        spares = tuple(
            name for name, each in self.nodes.items() if name not in used and each.taint is None and not each.owner
        )
        return Situation(self.now_s, dict(self.jobs), dict(self.nodes), spares, self.heard_share)

    def decision(self, heard: Iterable[FaultEvidence] = ()) -> HealthDecision:
        return decide(self.situation(), self.incidents, tuple(heard), self.policy)

    def cycle(self, heard: Iterable[FaultEvidence] = (), *, at_s: float | None = None) -> HealthDecision:
        """One cycle in which everything is written and carried out."""
        self.now_s = self.now_s if at_s is None else at_s
        decision = self.decision(heard)
        self.incidents = decision.incidents
        for intent in self.due(decision):
            self.carry_out(intent)
        for name in self.tested():
            self.nodes[name] = replace(self.nodes[name], tested_s=self.now_s)
        return decision

    def due(self, decision: HealthDecision) -> tuple[NodeIntent | JobIntent, ...]:
        """What may be carried out, by what was written last."""
        return (*decision.nodes, *decision.due([each.act for each in self.incidents if each.act is not None]))

    def carry_out(self, intent: NodeIntent | JobIntent) -> None:
        if isinstance(intent, NodeIntent):
            self._on_node(intent)
        elif intent.do is JobDo.MOVE_AT_CHECKPOINT:
            job = self.jobs[intent.job]
            if self.now_s - job.checkpoint_at_s > 60.0:  # it writes its next one at once
                self.jobs[intent.job] = replace(job, checkpoint_at_s=self.now_s + 0.001)
        elif intent.do is not JobDo.TOLERATE:
            self._on_job(intent)

    def _on_node(self, intent: NodeIntent) -> None:
        there = self.nodes.get(intent.node.name)
        if there is None or there.key != intent.node:
            return
        ours = there.taint is not None and there.taint.incident == intent.incident
        assert not there.owner or ours, f"{intent.do} on a node of {there.owner}"
        assert there.taint is None or ours, f"{intent.do} on a node of {there.taint}"
        if intent.do is NodeDo.TAINT:
            there = replace(there, taint=OurTaint(intent.incident, intent.generation, self.now_s))
        elif intent.do is NodeDo.PROBATION and there.taint is not None:
            there = replace(there, taint=replace(there.taint, on_probation=True))
        elif intent.do is NodeDo.UNTAINT and there.taint is not None and there.taint.generation <= intent.generation:
            there = replace(there, taint=None)
        self.nodes[intent.node.name] = there

    def _on_job(self, intent: JobIntent) -> None:
        on = self.jobs.get(intent.job)
        if on is None or on.incarnation != intent.incarnation:
            return
        self.restarts.append(intent)
        incarnation = f"{on.name}-{len(on.restarted_s) + 1}"
        pods = on.pods
        if intent.do is not JobDo.RESTART_IN_PLACE:
            pods = self._placed_anew(on, intent, incarnation)
        started_s = self.now_s + (on.in_place_restart_s if intent.do is JobDo.RESTART_IN_PLACE else on.restart_s)
        self.jobs[on.name] = replace(
            on,
            incarnation=incarnation,
            pods=pods,
            started_s=started_s,
            restarted_s=(*on.restarted_s, self.now_s),
        )

    def _placed_anew(self, on: JobFacts, intent: JobIntent, incarnation: str) -> tuple[PodFacts, ...]:
        if on.disruptions_allowed is not None:
            assert on.disruptions_allowed >= len(on.pods), "a disruption budget was broken"
        avoid = {key.name for key in intent.avoid}
        kept = [pod.node for pod in on.pods if pod.node not in avoid and self.nodes[pod.node].taint is None]
        free = [name for name in self.situation().spares if name not in avoid]
        wanted = intent.pods or len(on.pods)
        places = [*kept, *free][:wanted]
        assert len(places) >= on.min_available, f"{on.name} is left with {len(places)} of {on.min_available} pods"
        return tuple(PodFacts(f"{incarnation}-{index}", name, self.now_s, 8) for index, name in enumerate(places))

    def tested(self) -> list[str]:
        """Nodes in quarantine whose agents find nothing any more."""
        out = [each for each in self.incidents if each.phase is IncidentPhase.QUARANTINED]
        return [key.name for each in out for key in each.nodes if key.name not in self.broken]

    def node_dos(self, decision: HealthDecision) -> list[tuple[NodeDo, str]]:
        return [(each.do, each.node.name) for each in decision.nodes]

    def tainted(self) -> set[str]:
        return {name for name, each in self.nodes.items() if each.taint is not None}


def fleet(nodes: int = 40, spares: int = 2, *, leaf: int = 8, **facts: object) -> PretendFleet:
    """One job `train/a` on nodes n0, n1, …, and spare nodes; so many nodes per leaf switch."""
    names = [f"n{index}" for index in range(nodes + spares)]
    made = {name: node(name, domains=(f"switch/{index // leaf}",)) for index, name in enumerate(names)}
    return PretendFleet(made, {"train/a": job("train/a", names[:nodes], **facts)})


NODE = Origin.NODE
