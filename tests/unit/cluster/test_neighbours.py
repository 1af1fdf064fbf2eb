"""Rules between pods: what a mask says after pods start and stop is what it says of a snapshot with them."""

import random
from dataclasses import replace

import numpy as np
import pytest

from cluster.neighbours import Neighbours
from cluster.nodes import NodeFilter
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import OWN_VOLUME, Beside, Crowd, HostPort, PodRule, PodShape, Requirement
from tests.builders.fleet import node, pod, world

CROWDS = tuple(Crowd(("ns",), labels=(Requirement("app", "In", (app,)),)) for app in "abc")
ZONE, HOST = "zone", "host"


def shapes(rng: random.Random, count: int) -> list[PodShape]:
    """Random rules, about zones and hosts."""

    def rule() -> PodRule:
        kind = rng.choice(["near", "apart", "apart", "spread"])
        more = {"max_skew": rng.randint(1, 2), "min_domains": rng.randint(1, 4)} if kind == "spread" else {}
        return PodRule(kind, rng.choice(CROWDS), rng.choice([ZONE, HOST]), **more)  # type: ignore[arg-type]

    found = []
    for _ in range(count):
        ports = tuple(HostPort(port) for port in (80, 81) if rng.random() < 0.2)
        crowds = tuple(each for each in CROWDS if rng.random() < 0.5)
        rules = tuple(dict.fromkeys(rule() for _ in range(rng.randint(0, 2))))
        volumes = (("disk", rng.choice(("", "v", "w"))),) if rng.random() < 0.4 else ()
        claims = ("ns/one",) if rng.random() < 0.1 else ()
        beside = Beside(rules, crowds, ports, claims, volumes)
        found.append(PodShape(cpu_milli=1, beside=beside))
    return found


def fleet(rng: random.Random) -> tuple[Snapshot, list[PodShape]]:
    labels = [{HOST: f"h{n}", **({ZONE: rng.choice("xyz")} if rng.random() < 0.9 else {})} for n in range(6)]
    nodes = [node(f"n{n}", gpus=0, labels=own) for n, own in enumerate(labels)]
    made = world(nodes, [pod(f"ns/p{n}", gpus=0) for n in range(12)])
    known = shapes(rng, 12)
    limits = {"disk": np.array([rng.randint(0, 2) for _ in nodes], dtype=np.int64)}
    pods = replace(made.pods, shapes=tuple(known), shape=np.arange(12), node=np.full(12, PENDING))
    return replace(made, nodes=replace(made.nodes, volume_limits=limits), pods=pods), known


@pytest.mark.parametrize("seed", range(60))
def test_counts_that_follow_a_plan_say_what_a_new_count_says(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - a test's cases
    snapshot, known = fleet(rng)
    types = snapshot.gpu_type_names
    following = Neighbours(snapshot.nodes, NodeFilter(snapshot.nodes, types))
    where = snapshot.pods.node.copy()
    for _ in range(40):
        row = rng.randrange(12)
        if where[row] == PENDING:
            where[row] = rng.randrange(6)
            following.count(known[row].beside, int(where[row]), 1)
        else:
            following.count(known[row].beside, int(where[row]), -1)
            where[row] = PENDING
        anew = Neighbours.of(replace(snapshot, pods=replace(snapshot.pods, node=where.copy())))
        asked = rng.choice(known)
        expected = anew.allowed(asked)
        found = following.allowed(asked)

        assert np.array_equal(_full(found), _full(expected))
        refused = np.any([np.zeros(6, dtype=bool), *following.refusals(asked).values()], axis=0)
        assert np.array_equal(~refused, _full(found)), "each refusal is named"


def _full(mask: np.ndarray | None) -> np.ndarray:
    return np.ones(6, dtype=bool) if mask is None else mask


def test_the_first_of_pods_that_want_each_other_may_start_anywhere_and_the_next_beside_it() -> None:
    crowd = CROWDS[0]
    shape = PodShape(beside=Beside((PodRule("near", crowd, ZONE),), (crowd,)))
    nodes = world([node("a", labels={ZONE: "x"}), node("b", labels={ZONE: "y"}), node("c")]).nodes
    near = Neighbours(nodes, NodeFilter(nodes, ()))

    first = near.allowed(shape)
    near.count(shape.beside, 1, 1)
    second = near.allowed(shape)

    assert first is not None
    assert second is not None
    assert first.tolist() == [True, True, False], "without the label a node is in no zone"
    assert second.tolist() == [False, True, False]


def test_one_address_of_a_port_conflicts_with_itself_and_with_all_addresses() -> None:
    nodes = world([node("a")]).nodes

    def both(one: HostPort, other: HostPort) -> bool:
        ports = Neighbours(nodes, NodeFilter(nodes, ()))
        ports.count(Beside(ports=(one,)), 0, 1)
        allowed = ports.allowed(PodShape(beside=Beside(ports=(other,))))
        return bool(allowed is not None and allowed[0])

    assert not both(HostPort(80), HostPort(80))
    assert not both(HostPort(80), HostPort(80, address="10.0.0.1"))
    assert both(HostPort(80, address="10.0.0.2"), HostPort(80, address="10.0.0.1"))
    assert both(HostPort(80), HostPort(80, "UDP"))
    assert both(HostPort(80), HostPort(81))


def test_a_shared_volume_counts_once_on_a_node_and_each_of_a_pods_own() -> None:
    nodes = replace(world([node("a")]).nodes, volume_limits={"disk": np.array([3])})

    def room_after(*volumes: tuple[str, str]) -> bool:
        there = Neighbours(nodes, NodeFilter(nodes, ()))
        for _ in range(2):
            there.count(Beside(volumes=volumes), 0, 1)
        allowed = there.allowed(PodShape(beside=Beside(volumes=(("disk", OWN_VOLUME),))))
        return bool(allowed is not None and allowed[0])

    assert room_after(("disk", "v"))
    assert room_after(("disk", OWN_VOLUME))
    assert room_after(("disk", "v"), ("disk", "w"))
    assert not room_after(("disk", OWN_VOLUME), ("disk", OWN_VOLUME)), "four of three"
    assert not room_after(("disk", OWN_VOLUME), ("disk", "v")), "two and one are three"
