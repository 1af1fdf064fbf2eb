"""Pair probes: which pairs are measured, and what their answers name."""

from itertools import combinations

import pytest
from hypothesis import given, strategies as st

from health.probing import AnswerKind, Question, answer, pairs_of, question_of
from health.verdicts.verdict import JobVerdict, Part, Syndrome
from tests.rigs.health.job import DisturbanceKind
from tests.unit.health.jobs import drawn
from tonnage.pairs import PairSpeed, bad_pairs, rounds_of

SOUND, SLOW, LOST = PairSpeed(60e-6, 2e9), PairSpeed(60e-6, 1e9), PairSpeed(lost=True)
LATE = PairSpeed(5e-3, 2e9)
CONTROLS = ("c1", "c2")
TWO = Question(("a", "b"))
RING = Question(tuple(f"r{number}" for number in range(8)), ring=True)


def measured(question: Question, bad: object, how: PairSpeed = SLOW) -> dict[tuple[str, str], PairSpeed]:
    """All pairs sound but those for which `bad` holds."""
    return {pair: how if bad(set(pair)) else SOUND for pair in pairs_of(question, CONTROLS)}  # type: ignore[operator]


def test_suspects_are_measured_against_each_other_and_each_control_and_controls_once() -> None:
    assert set(map(frozenset, pairs_of(TWO, ("c1", "c2", "c3")))) == {
        frozenset(pair) for pair in combinations(("a", "b", "c1", "c2"), 2)
    }


def test_a_control_measures_a_suspect_and_not_the_other_way_round() -> None:
    assert all(a in CONTROLS for a, b in pairs_of(TWO, CONTROLS) if b in TWO.suspects and {a, b} != {"a", "b"})


def test_a_ring_is_measured_along_itself() -> None:
    pairs = pairs_of(RING, CONTROLS)

    assert pairs[0] == ("c1", "c2")
    assert [set(pair) for pair in pairs[1:]] == [{f"r{n}", f"r{(n + 1) % 8}"} for n in range(8)]


@given(st.integers(2, 32), st.booleans())
def test_no_node_takes_part_twice_in_a_round_and_rounds_are_few(nodes: int, ring: bool) -> None:
    question = Question(tuple(f"n{number}" for number in range(nodes)), ring=nodes > 8 or (ring and nodes > 3))
    pairs = pairs_of(question, CONTROLS)

    rounds = rounds_of(pairs)

    assert sorted(pair for each in rounds for pair in each) == sorted(pairs)
    for each in rounds:
        nodes_in = [node for pair in each for node in pair]
        assert len(nodes_in) == len(set(nodes_in))
    assert len(rounds) <= (3 if question.ring else 9)


@pytest.mark.parametrize("how", [SLOW, LOST, LATE], ids=["slow", "lost", "late"])
def test_a_node_that_every_peer_finds_bad_has_a_bad_nic(how: PairSpeed) -> None:
    found = answer(TWO, CONTROLS, measured(TWO, lambda pair: "a" in pair, how))

    assert (found.found, found.nodes) == (AnswerKind.NIC, ("a",))


@pytest.mark.parametrize("how", [SLOW, LOST, LATE], ids=["slow", "lost", "late"])
def test_a_pair_that_is_bad_alone_is_a_bad_link(how: PairSpeed) -> None:
    found = answer(TWO, CONTROLS, measured(TWO, lambda pair: pair == {"a", "b"}, how))

    assert (found.found, found.nodes) == (AnswerKind.LINK, ("a", "b"))


def test_alike_pairs_acquit_the_network() -> None:
    assert answer(TWO, CONTROLS, measured(TWO, lambda _: False)).found is AnswerKind.SOUND


def test_alike_pairs_acquit_nothing_inside_a_node() -> None:
    question = Question(("a", "b"), inside=True)

    assert answer(question, CONTROLS, measured(question, lambda _: False)).found is AnswerKind.OPEN


def test_in_a_ring_a_link_is_one_bad_pair_and_a_nic_two() -> None:
    link = answer(RING, CONTROLS, measured(RING, lambda pair: pair == {"r3", "r4"}))
    nic = answer(RING, CONTROLS, measured(RING, lambda pair: "r3" in pair))

    assert (link.found, link.nodes) == (AnswerKind.LINK, ("r3", "r4"))
    assert (nic.found, nic.nodes) == (AnswerKind.NIC, ("r3",))


def test_a_slow_control_is_left_out() -> None:
    assert answer(TWO, CONTROLS, measured(TWO, lambda pair: "c1" in pair)).found is AnswerKind.SOUND


def test_two_bad_nodes_are_left_open() -> None:
    found = answer(TWO, CONTROLS, measured(TWO, lambda pair: bool(pair & {"a", "b"})))

    assert found.found is AnswerKind.OPEN


def test_what_could_not_be_measured_accuses_and_acquits_nobody() -> None:
    assert answer(TWO, CONTROLS, {}).found is AnswerKind.OPEN
    assert answer(TWO, CONTROLS, {("a", "b"): SOUND}).found is AnswerKind.OPEN
    without = {pair: SOUND for pair in pairs_of(TWO, CONTROLS) if pair != ("a", "b")}
    assert answer(TWO, CONTROLS, without).found is AnswerKind.OPEN
    assert bad_pairs({("a", "b"): LOST}, CONTROLS) == frozenset()


@given(liar=st.sampled_from(["a", "c1", "c2"]), data=st.data())
def test_no_agent_can_accuse_another_node_by_its_own_measurements(liar: str, data: st.DataObject) -> None:
    """An agent reports pairs that it measures; whatever it says of them, only itself can look bad to all."""
    made = {
        pair: data.draw(st.sampled_from([SOUND, SLOW, LOST, LATE])) if pair[0] == liar else SOUND
        for pair in pairs_of(TWO, CONTROLS)
    }

    found = answer(TWO, CONTROLS, made)

    assert found.found is not AnswerKind.NIC or found.nodes == (liar,)


def test_only_suspicions_of_the_network_between_nodes_are_for_probes() -> None:
    layout = drawn(DisturbanceKind.SLOW_NIC, ranks=32).layout
    names = [f"n{number}" for number in range(int(layout.node.max()) + 1)]

    def asks(syndrome: Syndrome, part: Part, ranks: tuple[int, ...]) -> Question | None:
        return question_of(JobVerdict(1.0, syndrome, part, ranks, 0.0, 0.5, ()), layout, names)

    there = tuple(range(8))
    assert asks(Syndrome.OTHER_SLOW, Part.NOTHING, there) is None
    assert asks(Syndrome.COMMUNICATION_SLOW, Part.NOTHING, there) is None  # one node
    assert asks(Syndrome.COMMUNICATION_SLOW, Part.NIC, (3,)) == Question(("n0",))
    assert asks(Syndrome.COMMUNICATION_SLOW, Part.NOTHING, (3, 11)) == Question(("n0", "n1"))
    assert asks(Syndrome.COMMUNICATION_SLOW, Part.NOTHING, (3, 4, 11)) == Question(("n0", "n1"), inside=True)
