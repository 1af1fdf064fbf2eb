"""Pair probes of the controller: from an open verdict over orders and results to the evidence that closes it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from controller.loops.health.job_stream import frames_in
from controller.loops.health.members import JobMember, Members
from controller.loops.health.probing import DEADLINE_S, REST_S, Host, Probing
from controller.loops.health.stream import HealthStream
from health.probing import Question
from health.records.frames import HealthReport, ProbeAddress, ProbeOrder, ProbeResult, order_in, packed
from health.remediation.decision import decide
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
from health.remediation.incidents import IncidentPhase
from health.verdicts.verdict import Part, Syndrome
from tests.builders.frame_header import header
from tests.rigs.health.cases import Case, SimulatedNetwork, case
from tests.rigs.health.job import DisturbanceKind

JOB, START_S = "ns/train", 1_000_000.0
SPARES = ("spare0", "spare1")


class Fleet:
    """A job of a generated case with one pod on each node, two spare nodes, and agents that obey orders.

    Agents measure a simulated network; `deaf` ones do not.
    """

    def __init__(self, drawn: Case, *, hidden: bool = False, deaf: tuple[str, ...] = ()) -> None:
        self.case, self.deaf = drawn, deaf
        self.network = SimulatedNetwork(drawn, np.random.default_rng(7), hidden=hidden)
        self.nodes = (*self.network.nodes, *SPARES)
        members = tuple(JobMember(f"u-{node}", f"ns/p-{node}", JOB, node, START_S - 100) for node in self.network.nodes)
        self.stream = HealthStream()
        self.stream.follow(
            Members({each.uid: each for each in members}, {JOB: members}), {node: f"key-{node}" for node in self.nodes}
        )
        self.stream.governed = self.stream.controls = frozenset(self.nodes)
        self.sequences = dict.fromkeys(self.nodes, 0)
        self.done: dict[str, tuple[ProbeResult, ...]] = dict.fromkeys(self.nodes, ())
        self.orders: list[tuple[float, ProbeOrder]] = []
        self.obeyed: set[bytes] = set()

    def node_of(self, rank: int) -> str:
        return self.network.nodes[int(self.case.job.node[rank])]

    def play(self, for_s: float = DEADLINE_S + 5) -> list[FaultEvidence]:
        """The whole job and what follows; all evidence."""
        found: list[FaultEvidence] = []
        at_s = START_S
        for at_s, frames in self._frames():
            found += self.tick(at_s, frames)
        for beat in range(int(for_s * 4)):
            found += self.tick(at_s + beat / 4, {})
        return found

    def tick(self, at_s: float, frames: dict[str, bytes]) -> tuple[FaultEvidence, ...]:
        for node in self.nodes:
            self._obey(node, at_s)
            self.sequences[node] += 1
            shown = {f"u-{node}": frames[node]} if node in frames else {}
            address = ProbeAddress(f"10.0.0.{self.nodes.index(node)}", 9468)
            report = HealthReport(
                node, "life", self.sequences[node], shown, (), probes_at=address, probed=self.done[node]
            )
            self.stream.take(node, packed(report), at_s)
        return self.stream.judge(at_s)

    def _obey(self, node: str, at_s: float) -> None:
        text = self.stream.probing.orders.get(node)
        if text is None or text in self.obeyed:
            return
        self.obeyed.add(text)
        order = order_in(text)
        self.orders.append((at_s, order))
        if node not in self.deaf:
            self.done[node] = tuple(self._measured(node, peer.node, order.number) for peer in order.measure)

    def _measured(self, node: str, peer: str, number: str) -> ProbeResult:
        made = self.network.measure((node, peer))
        if made.lost:
            return ProbeResult(number, peer, 0.1, failure="silent")
        return ProbeResult(number, peer, 0.1, made.rtt_s, made.bytes_per_s, made.bytes_per_s * 1.1)

    def _frames(self) -> Iterator[tuple[float, dict[str, bytes]]]:
        made, first = self.case.transcript, dict[str, bytes]()
        for rank in range(self.case.job.ranks):
            rows = made.introductions.rows[made.introductions.rank == rank]
            head = header(len(rows), rank=rank, at_ns=0)
            first[self.node_of(rank)] = first.get(self.node_of(rank), b"") + head + rows.tobytes()
        yield START_S, first
        yield START_S + 2.0, {}
        for at_s, frames in made.ticks():
            by_node: dict[str, bytes] = {}
            for rank, _, one in frames_in(frames):
                by_node[self.node_of(rank)] = by_node.get(self.node_of(rank), b"") + one
            yield START_S + 2.0 + at_s, by_node

    def situation(self, now_s: float) -> Situation:
        pods = tuple(PodFacts(member.uid, member.node, member.created_s, 8) for member in self.stream.members.jobs[JOB])
        run = self.stream.members.incarnation(JOB)
        job = JobFacts(JOB, run, START_S - 100, pods, len(pods), 300.0, 60.0, START_S, 600.0)
        nodes = {name: NodeFacts(NodeKey(name, f"key-{name}"), gpus=8) for name in self.nodes}
        return Situation(now_s, {JOB: job}, nodes, SPARES)


def open_case() -> Case:
    """A slow NIC of rank 13 whose only telling path is a pair, so that the records leave it open."""
    return case(2, kind=DisturbanceKind.SLOW_NIC, ranks=16)


def asking(found: list[FaultEvidence]) -> FaultEvidence:
    return next(each for each in found if each.part is Part.NOTHING and each.probe and each.cause is None)


def test_a_verdict_that_is_left_open_is_answered_by_the_nic_that_every_peer_finds_slow() -> None:
    fleet = Fleet(open_case())

    found = fleet.play()

    first = asking(found)
    (accused,) = [each for each in found if each.source is Origin.NODE]
    node = fleet.node_of(13)
    assert (accused.part, accused.nodes) == (Part.NIC, (NodeKey(node, f"key-{node}"),))
    assert accused.pods == (f"u-{node}",)
    assert first.at_s < accused.at_s <= first.at_s + 30.0
    assert any(line.startswith("pair probes: ") for line in accused.shown)
    (over,) = [each for each in found if each.over]
    assert (over.part, over.nodes) == (first.part, first.nodes)
    assert fleet.stream.probing.answered == {"nic": 1}


def test_the_answer_closes_the_open_incident_and_opens_one_of_the_node() -> None:
    fleet = Fleet(open_case())
    found = fleet.play()
    first, last_s = asking(found), max(each.at_s for each in found)

    before = decide(
        fleet.situation(first.at_s), (), [each for each in found if each.at_s <= first.at_s], RemedyPolicy()
    )
    (asked,) = [each for each in before.incidents if each.is_open]
    after = decide(fleet.situation(last_s + 1), before.incidents, found, RemedyPolicy())

    assert (asked.phase, asked.waits_for[:5]) == (IncidentPhase.SUSPECTED, "probe")
    by_id = {each.id: each for each in after.incidents}
    assert by_id[asked.id].phase is IncidentPhase.CLOSED
    assert "answered: pair probes" in by_id[asked.id].waits_for
    (node,) = [each for each in after.incidents if each.is_open]
    assert (node.part, [key.name for key in node.nodes]) == (Part.NIC, [fleet.node_of(13)])


def test_a_sound_network_closes_the_open_incident_of_a_slow_job() -> None:
    fleet = Fleet(open_case(), hidden=True)
    found = fleet.play()

    after = decide(fleet.situation(max(each.at_s for each in found) + 1), (), found, RemedyPolicy())

    assert fleet.stream.probing.answered == {"sound": 1}
    assert not [each for each in found if each.source is Origin.NODE]
    assert not [each for each in after.incidents if each.is_open]
    assert any("no fault of the network" in each.waits_for for each in after.incidents)


def test_a_link_that_hangs_is_told_from_the_nics_of_its_ends() -> None:
    fleet = Fleet(case(2, kind=DisturbanceKind.HANG_LINK, ranks=16))

    found = fleet.play()

    (accused,) = [each for each in found if each.source is Origin.NODE]
    assert (accused.part, {key.name for key in accused.nodes}) == (Part.LINK, {fleet.node_of(5), fleet.node_of(9)})
    assert accused.syndrome is Syndrome.COMMUNICATION_HANG


def test_the_link_of_a_ring_that_records_name_by_its_group_is_named() -> None:
    fleet = Fleet(case(0, kind=DisturbanceKind.SLOW_LINK, ranks=16))

    found = fleet.play()

    assert [each.part for each in found if each.source is Origin.JOB and each.part is Part.GROUP]
    (accused,) = [each for each in found if each.source is Origin.NODE]
    assert (accused.part, {key.name for key in accused.nodes}) == (Part.LINK, {fleet.node_of(8), fleet.node_of(10)})


def test_all_orders_come_within_half_a_minute_are_few_and_each_names_one_peer() -> None:
    fleet = Fleet(case(0, kind=DisturbanceKind.SLOW_LINK, ranks=16))

    found = fleet.play()

    first = min(each.at_s for each in found if each.part is Part.GROUP)
    assert all(first <= at_s <= first + DEADLINE_S for at_s, _ in fleet.orders)
    assert sum(len(order.measure) for _, order in fleet.orders) <= 8 + 1 + 2  # the ring, the controls, a second look
    for _, order in fleet.orders:
        assert len(order.measure) + len(order.admit) == 1


def test_only_the_two_nodes_of_a_pair_have_its_token() -> None:
    fleet = Fleet(open_case())
    fleet.play()
    admitted = [(token, order.node) for _, order in fleet.orders for token in order.admit]
    shown = [(peer.token, peer.node) for _, order in fleet.orders for peer in order.measure]

    assert sorted(admitted) == sorted(shown)
    assert len({token for token, _ in admitted}) == len(admitted)


def test_no_node_takes_part_in_two_pairs_at_once() -> None:
    fleet = Fleet(open_case())
    fleet.play()
    rounds: dict[float, list[str]] = {}
    for at_s, order in fleet.orders:
        rounds.setdefault(at_s, []).append(order.node)

    assert all(len(nodes) == len(set(nodes)) for nodes in rounds.values())


def test_agents_that_do_not_answer_leave_the_question_open_in_time() -> None:
    drawn = open_case()
    fleet = Fleet(drawn, deaf=tuple(f"n{number:04}" for number in range(16)) + SPARES)

    found = fleet.play()

    first = asking(found)
    assert fleet.stream.probing.answered == {"open": 1}
    assert not [each for each in found if each.source is Origin.NODE or each.over]
    assert any("no pair could be measured" in line for each in found for line in each.shown)
    assert all(at_s <= first.at_s + DEADLINE_S for at_s, _ in fleet.orders)


def test_nodes_that_no_policy_governs_are_not_probed() -> None:
    fleet = Fleet(open_case())
    fleet.stream.governed = frozenset(SPARES)

    fleet.play()

    assert not fleet.orders


def hang(**fields: object) -> FaultEvidence:
    keys = tuple(NodeKey(node, f"key-{node}") for node in ("a", "b"))
    made = FaultEvidence(JOB, "run", Syndrome.COMMUNICATION_HANG, Part.GROUP, keys, ("u-a", "u-b"), 90.0, 100.0, 0.8)
    return replace(made, probe="pair probes between neighbours of the ring", **fields)  # type: ignore[arg-type]


AGENTS = {
    node: Host(100.0, life="life", sequence=5, probes_at=ProbeAddress(node, 1)) for node in ("a", "b", "c1", "c2")
}
KEYS = {node: f"key-{node}" for node in AGENTS}


def played(probing: Probing, at_s: float, rate: float = 2e9) -> list[FaultEvidence]:
    """Turns until the question is answered; every pair reaches the rate."""
    found: list[FaultEvidence] = []
    while not found and at_s < 200:
        agents = {node: replace(agent, heard_s=at_s) for node, agent in AGENTS.items()}
        found += probing.turn(agents, ("c1", "c2"), KEYS, at_s)
        for node, text in probing.orders.items():
            order = order_in(text)
            results = [ProbeResult(order.number, peer.node, 0.5, 60e-6, rate, rate) for peer in order.measure]
            probing.take(node, results, at_s + 1)
        at_s += 1
    return found


def test_a_job_that_hangs_on_a_sound_network_is_taken_for_a_fault_of_its_program() -> None:
    probing = Probing()
    probing.ask(Question(("a", "b")), hang(), {}, 100.0)

    (found,) = played(probing, 100.0)

    assert (found.program_error, found.probe, found.source, found.over) == (True, "", Origin.JOB, False)
    assert found.at_s <= 130.0


def test_the_instant_of_an_answer_is_that_of_its_newest_measurement() -> None:
    probing = Probing()
    probing.ask(Question(("a", "b")), hang(), {}, 100.0)

    (found,) = played(probing, 100.0)

    assert found.at_s % 1 == 0.5  # each was reported at a full second, half a second after it


def test_a_job_asks_once_in_two_minutes() -> None:
    probing = Probing()
    for at_s in (100.0, 110.0):
        probing.ask(Question(("a", "b")), hang(), {}, at_s)
    assert len(played(probing, 110.0)) == 1
    assert played(probing, 120.0) == []

    probing.ask(Question(("a", "b")), hang(), {}, 100.0 + REST_S)
    assert len(played(probing, 199.0)) <= 1


def test_a_question_dies_with_the_run_of_its_job() -> None:
    probing = Probing()
    probing.ask(Question(("a", "b")), hang(), {}, 100.0)

    probing.forget({JOB: "another run"})

    assert played(probing, 100.0) == []


def test_results_of_no_present_round_and_of_other_agents_count_for_nothing() -> None:
    probing = Probing()
    probing.ask(Question(("a", "b")), hang(), {}, 100.0)
    probing.turn(AGENTS, ("c1", "c2"), KEYS, 100.0)
    numbers = {order_in(text).number for text in probing.orders.values()}

    for node in ("b", "c2", "x"):
        probing.take(node, [ProbeResult(number, "a", 0.0) for number in (*numbers, "forged")], 101.0)

    assert {order_in(text).number for text in probing.orders.values()} == numbers
    assert not probing._asked[0].measured
