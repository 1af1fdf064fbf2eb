"""What always holds in remediation, whatever evidence arrives and wherever the controller dies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings, strategies as st

from health.remediation.decision import HealthDecision
from health.remediation.facts import FaultEvidence, NodeKey, Origin, RemedyPolicy
from health.remediation.incidents import Incident, IncidentPhase, JobDo
from health.verdicts.verdict import Part, Syndrome
from tests.builders.remedies import PretendFleet, evidence, job, node

JOBS = ("train/a", "train/b")
GENEROUS = RemedyPolicy(cluster_share=1.0, out_share=1.0, domain_share=1.0, job_quarantines=99, restarts=99)
STEP_S = 40.0
LATEST = 12
"""Cycles of a run."""
SYNDROMES = (
    Syndrome.OTHER_HANG,
    Syndrome.COMMUNICATION_HANG,
    Syndrome.DEAD_PROCESS,
    Syndrome.OTHER_SLOW,
    Syndrome.COMMUNICATION_SLOW,
)
PARTS = (Part.RANK, Part.NODE, Part.NIC, Part.LINK, Part.NOTHING)


@st.composite
def fleets(draw: st.DrawFn, *, policy: RemedyPolicy | None = None, hostile: bool = True) -> PretendFleet:
    """Two jobs, some spares; budgets, other owners and shared nodes where the fleet is hostile."""
    sizes = draw(st.integers(2, 8)), draw(st.integers(1, 4))
    names = [f"n{index}" for index in range(sum(sizes) + draw(st.sampled_from((0, 0, 1, 4))))]
    leaf = draw(st.sampled_from((2, 4, 100)))
    nodes = {name: node(name, domains=(f"switch/{index // leaf}",)) for index, name in enumerate(names)}
    jobs = {}
    for name, on in zip(JOBS, (names[: sizes[0]], names[sizes[0] : sum(sizes)]), strict=True):
        least = draw(st.sampled_from((1, len(on), len(on)))) if hostile else 1
        jobs[name] = job(
            name,
            on,
            min_available=least,
            disruptions_allowed=draw(st.sampled_from((None, None, 0, 1, len(on)))) if hostile else None,
            saves_when_stopped=draw(st.booleans()),
        )
    for name in draw(st.lists(st.sampled_from(names), max_size=3)) if hostile else ():
        nodes[name] = replace(nodes[name], **draw(st.sampled_from(({"owner": "nvsentinel"}, {"shared": True}))))
    return PretendFleet(nodes, jobs, policy or RemedyPolicy())


@st.composite
def accusations(draw: st.DrawFn, world: PretendFleet, *, forged: bool) -> FaultEvidence:
    """Evidence about a job as it is now; forged, anything in it may be wrong."""
    on = world.jobs[draw(st.sampled_from(JOBS))]
    part = draw(st.sampled_from(PARTS))
    blamed = draw(st.lists(st.sampled_from(on.pods), min_size=1, max_size=1 if part in PARTS[:3] else 2, unique=True))
    syndrome = draw(st.sampled_from(SYNDROMES))
    is_slow = syndrome in SYNDROMES[3:]
    made = evidence(
        on,
        *sorted({pod.node for pod in blamed}),
        at_s=world.now_s,
        part=part,
        syndrome=syndrome,
        since_s=max(world.now_s - draw(st.sampled_from((1.0, 30.0, 5000.0))), on.started_s),
        slow_share=draw(st.floats(0.05, 0.9)) if is_slow else 0.0,
        confidence=draw(st.floats(0.3, 1.0)),
        program_error=draw(st.booleans()),
        source=Origin.JOB if forged else draw(st.sampled_from((Origin.NODE, Origin.JOB))),
    )
    made = replace(made, since_s=min(made.since_s, made.at_s))
    if not forged:
        return made
    names = sorted(world.nodes)
    lies = {
        "at_s": st.sampled_from((made.at_s - 1e6, made.at_s - 200.0, made.at_s + 1e6)),
        "since_s": st.sampled_from((0.0, made.at_s + 50.0)),
        "incarnation": st.sampled_from(("", "another")),
        "nodes": st.lists(st.sampled_from(names), max_size=3).map(
            lambda each: tuple(NodeKey(name, world.nodes[name].key.uid) for name in each)
        ),
        "pods": st.sampled_from(((), ("another",), tuple(pod.uid for pod in on.pods))),
        "job": st.sampled_from((*JOBS, "none/such")),
    }
    for name in draw(st.lists(st.sampled_from(sorted(lies)), max_size=3, unique=True)):
        made = replace(made, **{name: draw(lies[name])})
    return made


@dataclass
class Watched:
    """A run with checks of every decision against the situation that it was made in."""

    world: PretendFleet

    def cycle(
        self, heard: Sequence[FaultEvidence], *, written: bool = True, carried_out: int = 10**9
    ) -> HealthDecision:
        decision = self.world.decision(heard)
        self.check(decision)
        if written:
            self.world.incidents = decision.incidents
        for intent in self.world.due(decision)[:carried_out]:
            self.world.carry_out(intent)
        return decision

    def check(self, decision: HealthDecision) -> None:
        incidents = {each.id: each for each in decision.incidents}
        for of_node in decision.nodes:
            assert self.world.nodes[of_node.node.name].key == of_node.node, "a node that was replaced"
        for intent in decision.jobs:
            on = self.world.jobs[intent.job]
            assert intent.incarnation == on.incarnation
            if intent.do is not JobDo.TOLERATE:
                assert incidents[intent.incident].seen_s >= on.started_s, "evidence older than the run"


def replaced(world: PretendFleet, name: str) -> None:
    """Another node under the same name; pods that were on it are gone and run anew on it."""
    fresh = node(name, uid=f"{world.nodes[name].key.uid}+", domains=world.nodes[name].domains)
    world.nodes[name] = fresh
    for on in list(world.jobs.values()):
        if any(pod.node == name for pod in on.pods):
            pods = tuple(
                replace(pod, uid=f"{pod.uid}+", created_s=world.now_s) if pod.node == name else pod for pod in on.pods
            )
            world.jobs[on.name] = replace(
                on, pods=pods, incarnation=f"{on.incarnation}+", started_s=world.now_s, restarted_s=on.restarted_s
            )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_harm_is_done_whatever_arrives_and_wherever_it_dies(data: st.DataObject) -> None:
    """minAvailable, disruption budgets, owners and taints of others are asserted by the pretend fleet."""
    world = data.draw(fleets())
    run = Watched(world)
    past: list[FaultEvidence] = []
    for _ in range(data.draw(st.integers(2, LATEST))):
        fresh = data.draw(st.lists(st.booleans().flatmap(lambda lie: accusations(world, forged=lie)), max_size=3))
        again = data.draw(st.lists(st.sampled_from(past), max_size=3)) if past else []
        heard = data.draw(st.permutations([*fresh, *again]))
        past += fresh
        run.cycle(heard, written=data.draw(st.booleans()), carried_out=data.draw(st.sampled_from((99, 99, 0, 1, 2, 3))))
        world.now_s += data.draw(st.sampled_from((1.0, STEP_S, 400.0)))
        if data.draw(st.integers(0, 5)) == 0:
            replaced(world, data.draw(st.sampled_from(sorted(world.nodes))))
        if data.draw(st.integers(0, 5)) == 0:
            name = data.draw(st.sampled_from(sorted(world.nodes)))
            world.nodes[name] = replace(world.nodes[name], owner=data.draw(st.sampled_from(("", "nvsentinel"))))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_forger_gets_no_node_quarantined_but_those_it_uses_alone(data: st.DataObject) -> None:
    world = data.draw(fleets())
    run, own = Watched(world), set[str]()
    for _ in range(data.draw(st.integers(2, LATEST))):
        own |= {pod.node for each in world.jobs.values() for pod in each.pods}
        run.cycle(data.draw(st.lists(accusations(world, forged=True), max_size=3)))
        assert world.tainted() <= own
        assert not any(world.nodes[name].shared for name in world.tainted())
        world.now_s += data.draw(st.sampled_from((1.0, STEP_S, 400.0)))


def state(world: PretendFleet) -> object:
    """Taints, restarts and open incidents that a run leaves."""
    restarts = sorted((each.job, each.do, each.avoid) for each in world.restarts)
    return world.tainted(), restarts, sorted((each.id, each.phase) for each in world.incidents if each.is_open)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_order_and_repetition_leave_no_trace(data: st.DataObject) -> None:
    world = data.draw(fleets(policy=GENEROUS))
    other = replace(world, nodes=dict(world.nodes), jobs=dict(world.jobs), restarts=[])
    runs = Watched(world), Watched(other)
    past: list[FaultEvidence] = []
    for _ in range(data.draw(st.integers(1, 6))):
        fresh = data.draw(st.lists(accusations(world, forged=False), max_size=3))
        past += fresh
        again = data.draw(st.lists(st.sampled_from(past), max_size=6)) if past else []
        runs[0].cycle(fresh)
        runs[1].cycle(data.draw(st.permutations([*fresh, *again])))
        assert state(world) == state(other)
        world.now_s = other.now_s = world.now_s + data.draw(st.sampled_from((1.0, STEP_S)))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_second_decision_on_the_same_facts_changes_nothing(data: st.DataObject) -> None:
    world = data.draw(fleets())
    for _ in range(data.draw(st.integers(1, 6))):
        heard = data.draw(st.lists(accusations(world, forged=False), max_size=3))
        first = world.decision(heard)
        world.incidents = first.incidents
        assert world.decision(heard) == first
        for intent in (*first.nodes, *first.jobs):
            world.carry_out(intent)
        world.now_s += STEP_S


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_crash_at_any_step_leads_to_the_same_end(data: st.DataObject) -> None:
    """Evidence stands while its run does, as the analyser's does; nodes fail their tests, so that taints stay."""
    world = data.draw(fleets(policy=GENEROUS, hostile=False))
    world.broken = set(world.nodes)
    other = replace(world, nodes=dict(world.nodes), jobs=dict(world.jobs), restarts=[])
    heard = data.draw(st.lists(accusations(world, forged=False), min_size=1, max_size=2))
    for _ in range(8):
        Watched(world).cycle([replace(each, at_s=world.now_s) for each in heard])
        world.now_s += 1.0
    for _ in range(data.draw(st.integers(1, 6))):
        Watched(other).cycle(
            [replace(each, at_s=other.now_s) for each in heard],
            written=data.draw(st.booleans()),
            carried_out=data.draw(st.integers(0, 3)),
        )
    for _ in range(8):
        Watched(other).cycle([replace(each, at_s=other.now_s) for each in heard])
        other.now_s += 1.0
    assert state(world) == state(other)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_in_the_end_every_node_is_released(data: st.DataObject) -> None:
    world = data.draw(fleets())
    for _ in range(data.draw(st.integers(1, 6))):
        world.cycle(data.draw(st.lists(accusations(world, forged=False), max_size=3)))
        world.now_s += STEP_S
    world.policy = replace(world.policy, cluster_share=0.0, out_share=0.0, domain_share=0.0)
    world.jobs = {name: replace(each, incarnation="new", started_s=world.now_s) for name, each in world.jobs.items()}
    # Twice: where one member alone leaves, its job goes on, and what else it accuses is judged after that.
    for later_s in (1.0, 1.0, 1.0, 5 * 3600.0, 1.0, 1.0, 5 * 3600.0, 1.0, 1.0):
        world.now_s += later_s
        world.cycle()
    assert world.tainted() == set()
    assert open_incidents(world.incidents) == []


def open_incidents(incidents: Sequence[Incident]) -> list[str]:
    return [each.id for each in incidents if each.phase is not IncidentPhase.CLOSED]
