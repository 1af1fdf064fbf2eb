"""Remediation in the order of deciders: what verdicts become, by each policy, and that it is done once."""

from dataclasses import replace

import pytest

from cluster.actions import Bind, RestartGang, Taint, Untaint
from cluster.changes import PROBATION_TAINT, UNHEALTHY_TAINT, taint_on, tainted
from cluster.frame import FrameError
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang
from controller.brain.frames import plan_frame, plan_from_frame, snapshot_frame, snapshot_from_frame
from controller.deciders import remediation
from controller.deciders.decider import Turn
from controller.deciders.decisions import Decisions
from controller.deciders.edits import AWAITS_POD, without_pods_to_come
from controller.deciders.memory import PlannerMemory
from controller.deciders.remediation import HealthFacts, HealthOutcome, HealthRules, incarnation_of
from controller.guard import Limits, guard
from health.remediation.facts import (
    FaultEvidence,
    JobFacts,
    NodeFacts,
    NodeKey,
    Origin,
    PodFacts,
    RemedyPolicy,
    Situation,
)
from health.remediation.incidents import Incident
from health.verdicts.verdict import Part, Syndrome
from placement.budget import Budget
from tests.builders.fleet import node, pod, world

NOW_S = 1_000_000.0
MEMBERS = 4
JOB = "ns/train"
WHY = Reason("Test", "because")


def fleet(spares: int = 4, least: int = MEMBERS) -> Snapshot:
    """A gang of four on n0 to n3, and idle nodes. least: members that it needs."""
    nodes = [node(f"n{n}", 8) for n in range(MEMBERS + spares)]
    pods = [pod(f"p{n}", 8, gang="train", on=f"n{n}", devices=tuple(range(8))) for n in range(MEMBERS)]
    return world(nodes, pods, [Gang("train", least)])


def situation(snapshot: Snapshot, now_s: float = NOW_S) -> Situation:
    names = snapshot.nodes.names
    nodes = {name: NodeFacts(NodeKey(name, f"u-{name}")) for name in names}
    pods = tuple(PodFacts(f"u-p{n}", f"n{n}", NOW_S - 3600, 8) for n in range(MEMBERS))
    job = JobFacts(
        name=snapshot.gangs[0].name,
        incarnation=incarnation_of(pod.uid for pod in pods),
        started_s=NOW_S - 3600,
        pods=pods,
        min_available=snapshot.gangs[0].min_members,
        restart_s=150,
        in_place_restart_s=60,
        checkpoint_at_s=NOW_S - 60,
        checkpoint_interval_s=600,
    )
    spares = tuple(name for name in names if int(name[1:]) >= MEMBERS)
    return Situation(now_s, {job.name: job}, nodes, spares)


def hang(of: int, snapshot: Snapshot) -> FaultEvidence:
    """Rank on node `of` never enters an operation that all others wait in."""
    job = situation(snapshot).jobs[snapshot.gangs[0].name]
    return FaultEvidence(
        job=job.name,
        incarnation=job.incarnation,
        syndrome=Syndrome.OTHER_HANG,
        part=Part.NODE,
        nodes=(NodeKey(f"n{of}", f"u-n{of}"),),
        pods=(f"u-p{of}",),
        since_s=NOW_S - 5,
        at_s=NOW_S - 1,
        confidence=0.95,
        shown=("all wait for it",),
    )


def faulty(name: str) -> FaultEvidence:
    """The agent of a node reports a GPU error."""
    return FaultEvidence(
        job="", incarnation="", syndrome=Syndrome.NONE, part=Part.NODE, nodes=(NodeKey(name, f"u-{name}"),), pods=(),
        since_s=NOW_S - 5, at_s=NOW_S - 1, confidence=0.9, source=Origin.NODE, shown=("Xid79",),
    )  # fmt: skip


def rules(snapshot: Snapshot, *, acts: bool = True) -> HealthRules:
    """A node is back in ten minutes, so that going on with fewer pods costs little."""
    return HealthRules("all", RemedyPolicy(remediate=acts, node_back_s=600.0), frozenset(snapshot.nodes.names))


def with_facts(
    snapshot: Snapshot, *evidence: FaultEvidence, acts: bool = True, incidents: tuple[Incident, ...] = ()
) -> Snapshot:
    """The incidents are on record."""
    pods = {f"u-p{n}": snapshot.pods.names[n] for n in range(MEMBERS)}
    recorded = tuple(each.act for each in incidents if each.act is not None)
    facts = HealthFacts(situation(snapshot), evidence, incidents, recorded, (rules(snapshot, acts=acts),), pods)
    return replace(snapshot, health=facts)


def with_hang(snapshot: Snapshot) -> Snapshot:
    """Rank on n2 hangs the job, and what is done about it is on record."""
    decided = incidents_of(plan_of(with_facts(snapshot, hang(2, snapshot))))
    return with_facts(snapshot, hang(2, snapshot), incidents=decided)


def incidents_of(plan: Plan) -> tuple[Incident, ...]:
    assert isinstance(plan.health, HealthOutcome)
    return plan.health.incidents


def plan_of(snapshot: Snapshot) -> Plan:
    return remediation.decide(snapshot, Turn(Decisions(), Budget(1.0), PlannerMemory(), snapshot))


def actions(plan: Plan) -> list[object]:
    return [step.action for step in plan.steps()]


def test_a_node_that_hangs_a_job_is_tainted_before_the_job_is_restarted_whole() -> None:
    taint, restart = actions(plan_of(with_hang(fleet())))

    assert isinstance(taint, Taint)
    assert (taint.node, taint.uid, taint.key) == ("n2", "u-n2", UNHEALTHY_TAINT)
    assert isinstance(restart, RestartGang)
    assert [uid for _, uid, _ in restart.pods] == ["u-p0", "u-p1", "u-p2", "u-p3"]
    assert len(taint.value) <= 63  # as a taint's value may be


def test_a_gang_that_needs_fewer_members_goes_on_without_the_one_on_the_node_where_no_node_is_free() -> None:
    seen = with_hang(fleet(spares=0, least=MEMBERS - 1))
    _, restart = actions(plan_of(seen))
    _, with_spares = actions(plan_of(with_hang(fleet(spares=1, least=MEMBERS - 1))))

    assert isinstance(restart, RestartGang)
    assert [uid for _, uid, _ in restart.pods] == ["u-p2"]
    assert not guard(seen, plan_of(seen), Limits()).refused
    assert isinstance(with_spares, RestartGang)
    assert len(with_spares.pods) == MEMBERS


def test_no_job_is_restarted_before_the_decision_is_on_record() -> None:
    """A controller that dies after the restart would forget why; the taint is a record itself."""
    (only,) = actions(plan_of(with_facts(fleet(), hang(2, fleet()))))

    assert isinstance(only, Taint)


def test_the_guard_has_nothing_against_it() -> None:
    seen = with_hang(fleet())

    assert not guard(seen, plan_of(seen), Limits()).refused


def test_what_is_done_is_not_done_again() -> None:
    """The fixed point: in a world that obeys, the second cycle plans nothing."""
    seen = with_hang(fleet())
    plan = plan_of(seen)
    incidents = incidents_of(plan)

    after = with_facts(fleet(), hang(2, fleet()), incidents=incidents).after(plan.actions)

    assert (after.pods.node == PENDING).all()
    assert not actions(plan_of(after))


def test_a_policy_that_observes_opens_incidents_and_does_nothing() -> None:
    plan = plan_of(with_facts(fleet(), hang(2, fleet()), acts=False))

    assert not actions(plan)
    (incident,) = incidents_of(plan)
    assert [key.name for key in incident.nodes] == ["n2"]
    assert [finding.about for finding in plan.findings] == [f"FaultIncident/{incident.id}"]


def test_nothing_is_decided_where_there_is_no_policy() -> None:
    assert plan_of(fleet()) == Plan()


def test_a_faulty_node_without_a_job_is_taken_out() -> None:
    (taint,) = actions(plan_of(with_facts(fleet(), faulty("n6"))))

    assert isinstance(taint, Taint)
    assert taint.node == "n6"


def test_an_incident_that_lost_its_record_goes_on_from_its_taint() -> None:
    seen = fleet()
    marked = tainted(seen, "n6", UNHEALTHY_TAINT, "node-n6-abc.3")

    (incident,) = incidents_of(plan_of(with_facts(marked)))

    assert (incident.id, incident.generation) == ("node-n6-abc", 3)


def test_a_node_released_by_a_person_loses_our_taint_and_no_other() -> None:
    seen = tainted(tainted(fleet(), "n6", UNHEALTHY_TAINT, "node-n6-abc.1"), "n6", "other", "x")
    facts = HealthFacts(situation(seen), rules=(rules(seen),))
    nodes = {**facts.situation.nodes}
    nodes["n6"] = replace(nodes["n6"], released_s=NOW_S + 1)
    facts = replace(facts, situation=replace(facts.situation, nodes=nodes))

    (untaint,) = actions(plan_of(replace(seen, health=facts)))

    assert untaint == Untaint("n6", "u-n6", UNHEALTHY_TAINT, "node-n6-abc.1")
    after = seen.after([untaint])
    assert taint_on(after, "n6", UNHEALTHY_TAINT) is None
    assert taint_on(after, "n6", "other") is not None


def test_probation_replaces_quarantine() -> None:
    seen = tainted(fleet(), "n6", UNHEALTHY_TAINT, "i.1")

    after = seen.after([Taint("n6", "u-n6", PROBATION_TAINT, "i.1")])

    assert [each.key for each in after.nodes.taints[6]] == [PROBATION_TAINT]


@pytest.mark.parametrize(("out", "is_refused"), [(0, False), (1, True)])
def test_the_guard_lets_no_plan_take_out_more_than_a_tenth_of_the_nodes(out: int, *, is_refused: bool) -> None:
    seen = fleet(spares=8)  # twelve nodes: one
    for n in range(out):
        seen = tainted(seen, f"n{11 - n}", UNHEALTHY_TAINT, "i.1")

    step = Step(Taint("n2", "u-n2", UNHEALTHY_TAINT, "i.1"), Reason("Unhealthy", "test"))

    checked = guard(seen, Plan(phases=(Phase("quarantine", (step,)),)), Limits())

    assert ([each.reason.code for each in checked.refused] == ["TooManyNodesOut"]) is is_refused


def test_the_guard_lets_no_plan_restart_many_gangs() -> None:
    seen = with_hang(fleet())

    checked = guard(seen, plan_of(seen), Limits(max_restarts=0))

    assert [each.reason.code for each in checked.refused] == ["TooManyRestarts"]


def test_facts_and_outcome_cross_to_another_process_and_back() -> None:
    seen = with_hang(fleet())

    there = snapshot_from_frame(snapshot_frame(seen))
    plan = plan_of(there)

    assert there.health == seen.health
    assert plan_from_frame(plan_frame(plan)) == plan


def test_facts_that_are_none_are_refused() -> None:
    frame = snapshot_frame(with_hang(fleet()))

    with pytest.raises(FrameError):
        snapshot_from_frame(frame.replace(b"situation", b"situatiox"))


def test_members_of_a_restarted_gang_are_placed_when_their_owner_has_made_them_again() -> None:
    seen = with_hang(fleet())
    plan = plan_of(seen)
    placed = Phase(
        "start", tuple(Step(Bind(seen.pods.names[n], f"n{n + 4}", ()), WHY) for n in range(MEMBERS)), whole=True
    )

    edited = without_pods_to_come(seen, replace(plan, phases=(*plan.phases, placed)))

    assert actions(edited) == actions(plan)
    assert {each.reason.code for each in edited.unplaced} == {AWAITS_POD}
