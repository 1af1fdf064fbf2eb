"""Remediation: taints of nodes and restarts of gangs, by each HealthPolicy, and the incidents that are behind them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from operator import attrgetter

from cluster.actions import RestartGang, Taint, Untaint
from cluster.changes import OUR_TAINTS, PROBATION_TAINT, UNHEALTHY_TAINT, taint_on
from cluster.plans import Finding, HealthResult, Phase, Plan, Reason, Step
from cluster.snapshot import PENDING, HealthInput, Snapshot
from controller.deciders.decider import Turn
from health.remediation.decision import decide as decide_on
from health.remediation.facts import FaultEvidence, NodeFacts, OurTaint, RemedyPolicy, Situation
from health.remediation.incidents import Act, Incident, JobDo, JobIntent, NodeDo, NodeIntent


@dataclass(frozen=True, slots=True)
class HealthRules:
    """One HealthPolicy: its limits, and the nodes that it governs."""

    name: str
    policy: RemedyPolicy
    nodes: frozenset[str]
    """A node is governed by one policy at most."""


@dataclass(frozen=True, slots=True)
class HealthFacts(HealthInput):
    """Input of remediation."""

    situation: Situation
    evidence: tuple[FaultEvidence, ...] = ()
    incidents: tuple[Incident, ...] = ()
    recorded: tuple[Act, ...] = ()
    """Decisions that the API server has on record: a restart waits until its own is among them."""
    rules: tuple[HealthRules, ...] = ()
    pods: Mapping[str, str] = field(default_factory=dict)
    """`namespace/name` of each pod of a job, by UID."""


@dataclass(frozen=True, slots=True)
class HealthOutcome(HealthResult):
    """Output of remediation."""

    incidents: tuple[Incident, ...] = ()
    jobs: tuple[JobIntent, ...] = ()
    """What is to become of each job that one of them disturbs, with the prices of the alternatives."""


def incarnation_of(uids: Iterable[str]) -> str:
    """Name of the run of a job that consists of these pods; empty without any."""
    known = sorted(uids)
    return sha256(",".join(known).encode()).hexdigest()[:16] if known else ""


RESTARTS = (JobDo.EVICT_NOW, JobDo.RESTART_IN_PLACE)


def decide(snapshot: Snapshot, turn: Turn) -> Plan:  # noqa: ARG001 - a Decide
    """Steps of the policies in mode Act, and the next state of all incidents."""
    facts = snapshot.health
    if not isinstance(facts, HealthFacts):
        return Plan()
    situation = as_in(snapshot, facts)
    incidents: list[Incident] = []
    jobs: list[JobIntent] = []
    steps: list[Step] = []
    restarts: dict[str, Step] = {}
    for rules in facts.rules:
        evidence, known = _governed(facts, rules)
        # The nodes that the policy governs, and all jobs.
        nodes = {name: node for name, node in situation.nodes.items() if name in rules.nodes}
        decision = decide_on(replace(situation, nodes=nodes), known, evidence, rules.policy)
        incidents += decision.incidents
        jobs += decision.jobs
        if rules.policy.remediate:
            steps += (step for intent in decision.nodes if (step := _node_step(snapshot, intent)) is not None)
            due = decision.due(facts.recorded)
            restarts.update((step.action.subject, step) for step in _restarts(snapshot, facts, due, rules))
    outcome = HealthOutcome(tuple(sorted(incidents, key=attrgetter("id"))), tuple(jobs))
    phases = [Phase("quarantine", tuple(steps), whole=False)] if steps else []
    phases += [Phase(f"restart {step.action.subject}", (step,), whole=True) for step in restarts.values()]
    findings = []
    for incident in outcome.incidents:
        if incident.is_open:
            words = incident.waits_for or (incident.shown[0] if incident.shown else str(incident.syndrome))
            findings.append(Finding(f"FaultIncident/{incident.id}", Reason(str(incident.phase), words)))
    return Plan(phases=tuple(phases), findings=tuple(findings), health=outcome)


def as_in(snapshot: Snapshot, facts: HealthFacts) -> Situation:
    """The situation with taints and seats as the snapshot has them: it may be ahead of what was observed."""
    nodes = {name: _node_as_in(snapshot, node, facts) for name, node in facts.situation.nodes.items()}
    jobs = {}
    for name, job in facts.situation.jobs.items():
        rows = [(pod, snapshot.pods.names.row(facts.pods.get(pod.uid, ""))) for pod in job.pods]
        kept = tuple(pod for pod, row in rows if row is not None and snapshot.pods.node[row] != PENDING)
        same = len(kept) == len(job.pods)
        jobs[name] = job if same else replace(job, pods=kept, incarnation=incarnation_of(pod.uid for pod in kept))
    return replace(facts.situation, nodes=nodes, jobs=jobs)


def _node_as_in(snapshot: Snapshot, node: NodeFacts, facts: HealthFacts) -> NodeFacts:
    found = ((key, taint_on(snapshot, node.key.name, key)) for key in OUR_TAINTS)
    values = ((key, taint.value) for key, taint in found if taint is not None)
    now = next((ours for key, value in values if (ours := our_taint(key, value, facts.situation.now_s))), None)
    before = node.taint
    is_same = now == before or (now is not None and before is not None and replace(now, at_s=before.at_s) == before)
    return node if is_same else replace(node, taint=now)


def our_taint(key: str, value: str, at_s: float) -> OurTaint | None:
    """The taint that Tonnage set on a node, read back; one whose value was changed is not ours any more."""
    incident, _, generation = value.rpartition(".")
    if key not in OUR_TAINTS or not incident or not generation.isdigit():
        return None
    return OurTaint(incident, int(generation), at_s, on_probation=key == PROBATION_TAINT)


def _governed(facts: HealthFacts, rules: HealthRules) -> tuple[list[FaultEvidence], list[Incident]]:
    """Evidence and incidents of a policy: those of its nodes, and those of jobs that begin on its nodes."""

    def ours(job: str) -> bool:
        found = facts.situation.jobs.get(job)
        return found is not None and bool(found.pods) and found.pods[0].node in rules.nodes

    evidence = [
        each for each in facts.evidence if (each.nodes[0].name in rules.nodes if each.nodes else ours(each.job))
    ]
    first = facts.rules[0].name == rules.name
    incidents = [
        each
        for each in facts.incidents
        if (each.nodes[0].name in rules.nodes if each.nodes else any(ours(run.job) for run in each.runs) or first)
    ]
    return evidence, incidents


def _node_step(snapshot: Snapshot, intent: NodeIntent) -> Step | None:
    name, uid, value = intent.node.name, intent.node.uid, f"{intent.incident}.{intent.generation}"
    figures = {"generation": float(intent.generation)}
    match intent.do:
        case NodeDo.TAINT:
            return Step(Taint(name, uid, UNHEALTHY_TAINT, value), Reason("Unhealthy", intent.reason, figures))
        case NodeDo.PROBATION:
            return Step(Taint(name, uid, PROBATION_TAINT, value), Reason("OnProbation", intent.reason, figures))
        case NodeDo.UNTAINT:
            present = ((key, taint) for key in OUR_TAINTS if (taint := taint_on(snapshot, name, key)) is not None)
            key, taint = next(present, ("", None))
            if taint is None or taint.value.rpartition(".")[0] != intent.incident:
                return None
            return Step(Untaint(name, uid, key, taint.value), Reason("Healthy", intent.reason, figures))


def _restarts(
    snapshot: Snapshot, facts: HealthFacts, intents: tuple[JobIntent, ...], rules: HealthRules
) -> Iterator[Step]:
    uids = {name: uid for uid, name in facts.pods.items()}
    gangs = {gang.name: number for number, gang in enumerate(snapshot.gangs)}
    pods, nodes = snapshot.pods, snapshot.nodes.names
    for intent in intents:
        if intent.do not in RESTARTS or intent.job not in gangs:
            continue
        rows = ((pods.gang == gangs[intent.job]) & (pods.node != PENDING)).nonzero()[0].tolist()
        members = tuple((pods.names[row], uids.get(pods.names[row], ""), nodes[int(pods.node[row])]) for row in rows)
        # A pod of another run is among them, or one on a node where this policy may do nothing.
        if not members or any(not uid or node not in rules.nodes for _, uid, node in members):
            continue
        stay = [pod for pod, _, node in members if node not in {key.name for key in intent.avoid}]
        if intent.pods and len(stay) < len(members) and snapshot.gangs[gangs[intent.job]].lacks(stay) <= 0:
            members = tuple(each for each in members if each[0] not in stay)  # it goes on with the others
        gpu_hours = {
            f"{str(each.do).replace(' ', '_')}_gpu_hours": each.gpu_hours
            for each in intent.alternatives
            if each.gpu_hours < float("inf")  # that can be done
        }
        yield Step(RestartGang(intent.job, members), Reason("Unhealthy", intent.reason, gpu_hours))
