"""A job on simulated nodes that remediation decides on, and whether a decision takes a node out."""

from collections.abc import Mapping
from dataclasses import replace

from health.records.layout import Layout
from health.remediation.decision import HealthDecision, decide
from health.remediation.facts import FaultEvidence, JobFacts, NodeFacts, NodeKey, PodFacts, RemedyPolicy, Situation
from health.remediation.incidents import Incident, NodeDo
from health.verdicts.verdict import JobVerdict, Syndrome

JOB = "train/job"
START_S = 1_000_000.0
"""When the job's run has gone on for an hour; checkpoints are ten minutes apart."""
CHECKPOINT_S = 600.0


class SimulatedJob:
    """A job with a pod on each of its nodes, one spare node, and the incidents that it has caused."""

    def __init__(self, layout: Layout, speed_share: Mapping[int, float] | None = None) -> None:
        """speed_share: of ranks, as far as remediation knows of our own limits on them."""
        self._layout = layout
        self.incidents: tuple[Incident, ...] = ()
        share: dict[str, float] = {}
        for rank, left in (speed_share or {}).items():
            share[self._name(rank)] = min(share.get(self._name(rank), 1.0), left)
        names = sorted({self._name(rank) for rank in range(layout.ranks)})
        self._nodes = {
            name: NodeFacts(NodeKey(name, name), own_speed_share=share.get(name, 1.0), limited_since_s=START_S - 60.0)
            for name in (*names, "spare")
        }
        pods = tuple(PodFacts(f"pod-{name}", name, START_S - 3600.0, 8) for name in names)
        self._job = JobFacts(JOB, "0", START_S - 3600.0, pods, len(pods), 150.0, 75.0, START_S, CHECKPOINT_S)

    def decided(self, heard: list[FaultEvidence], now_s: float) -> HealthDecision:
        """What remediation does now; the job itself goes on as it is."""
        facts = replace(self._job, checkpoint_at_s=now_s - now_s % CHECKPOINT_S)
        decision = decide(
            Situation(now_s, {JOB: facts}, self._nodes, ("spare",)), self.incidents, heard, RemedyPolicy()
        )
        self.incidents = decision.incidents
        return decision

    def evidence(self, verdict: JobVerdict, at_s: float, slow_share: float, since_s: float = START_S) -> FaultEvidence:
        """The verdict as the controller hands it on, with the loss of speed that the job's steps show."""
        names = sorted({self._name(rank) for rank in verdict.ranks})
        is_slow = verdict.syndrome in (Syndrome.OTHER_SLOW, Syndrome.COMMUNICATION_SLOW)
        return FaultEvidence(
            job=JOB,
            incarnation="0",
            syndrome=verdict.syndrome,
            part=verdict.part,
            nodes=tuple(NodeKey(name, name) for name in names),
            pods=tuple(f"pod-{name}" for name in names),
            since_s=since_s,
            at_s=at_s,
            confidence=verdict.confidence,
            slow_share=slow_share if is_slow else 0.0,
            cause=verdict.cause,
            probe=verdict.probe,
        )

    def _name(self, rank: int) -> str:
        return f"node-{int(self._layout.node[rank])}"


def takes_out_a_node(decision: HealthDecision) -> bool:
    return any(each.do is NodeDo.TAINT for each in decision.nodes)
