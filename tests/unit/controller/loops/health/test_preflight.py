"""Preflights that agents forward: whom they accuse, and that they stand in the way of no record of training."""

from health.remediation.facts import FaultEvidence
from health.verdicts.verdict import Part, Syndrome
from tests.unit.controller.loops.health.test_stream import JOB, START_S, Fleet, node_of
from tonnage.preflight import Accused, report
from tonnage.records import AccusedPart

NODES = sorted({node_of(rank) for rank in range(16)})


def said_by(rank: int, *found: Accused) -> bytes:
    frames: list[bytes] = []
    report(frames.append, rank, len(NODES), found)
    return b"".join(frames)


def held(fleet: Fleet, *found: Accused, ranks: int = len(NODES)) -> list[FaultEvidence]:
    """A preflight in which rank 0 has found this; so many ranks speak."""
    for rank, node in list(enumerate(NODES))[:ranks]:
        fleet.report(node, START_S - 10, {f"u-{node}": said_by(rank, *(found if rank == 0 else ()))})
    return list(fleet.stream.judge(START_S - 10))


def test_a_rank_that_is_accused_is_its_pod_and_its_node() -> None:
    (found,) = held(Fleet(), Accused(AccusedPart.DEVICE, 1, share=0.43))

    assert (found.syndrome, found.part, found.job) == (Syndrome.OTHER_HANG, Part.NODE, JOB)
    assert ([key.name for key in found.nodes], found.pods) == ([NODES[1]], (f"u-{NODES[1]}",))
    assert found.shown == ("preflight: its matrix products reach 43 % of what is usual",)


def test_a_path_is_both_its_ends_and_a_network_one_node() -> None:
    link, nic = held(Fleet(), Accused(AccusedPart.LINK, 1, 0, 0.1), Accused(AccusedPart.NIC, 1, share=0.5))

    assert (link.part, {key.name for key in link.nodes}) == (Part.LINK, {NODES[0], NODES[1]})
    assert (nic.part, {key.name for key in nic.nodes}) == (Part.NIC, {NODES[1]})


def test_a_rank_of_which_no_pod_has_spoken_is_accused_once_one_has() -> None:
    fleet = Fleet()

    assert held(fleet, Accused(AccusedPart.DEVICE, 1), ranks=1) == []
    assert len(held(fleet)) == 1
    assert held(fleet) == []


def test_a_device_that_our_own_watts_slow_is_not_accused() -> None:
    fleet = Fleet()
    fleet.cap(NODES[1], 0.5)

    assert held(fleet, Accused(AccusedPart.DEVICE, 1, share=0.45)) == []
    assert len(held(fleet, Accused(AccusedPart.DEVICE, 1, share=0.2))) == 1


def test_a_pod_accuses_nodes_of_its_own_gang_alone() -> None:
    fleet = Fleet()
    fleet.report("n0", START_S, {"u-other": said_by(0, Accused(AccusedPart.DEVICE, 1))})

    assert fleet.stream.judge(START_S) == ()


def test_the_same_pods_records_are_read_as_without_a_preflight() -> None:
    """Ranks of a preflight are pods, and those of training are GPUs: rank 1 of both is elsewhere."""
    fleet = Fleet()
    held(fleet)

    assert [each.pods for each in fleet.play()] == [each.pods for each in Fleet().play()]
    assert fleet.stream.refused == {}
