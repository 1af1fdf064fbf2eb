"""Rank order of gangs: equal pods take the seats of their gang depth first, and nothing else changes."""

from collections.abc import Sequence

import pytest

from cluster.actions import Bind
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import Gang, MemberGroup
from controller.deciders.decisions import Decisions
from controller.deciders.edits import order_ranks
from controller.deciders.pipeline import decide
from placement.network_tree import LEVELS, crossings, path_of
from tests.builders.fleet import Node, node, pod, world

LEAF = "network.topology.nvidia.com/leaf"
PODS = [f"ns/w-{n}" for n in range(4)]


def racks(count: int, each: int) -> list[Node]:
    """Nodes of the racks in turns, as names often have them."""
    return [node(f"n{n}", gpus=2, labels={LEAF: f"leaf-{n % count}"}) for n in range(count * each)]


def gang(nodes: Sequence[Node], gpus: Sequence[int] = (1, 1, 1, 1)) -> Snapshot:
    pods = [pod(name, gpus=count, gang="ns/g") for name, count in zip(PODS, gpus, strict=True)]
    return world(nodes, pods, gangs=[Gang("ns/g", 4)])


def plan(*seats: tuple[str, tuple[int, ...]]) -> Plan:
    steps = (
        Step(Bind(name, where, devices), Reason("LeastCost", where))
        for name, (where, devices) in zip(PODS, seats, strict=True)
    )
    return Plan(phases=(Phase("start ns/g", tuple(steps), whole=True),))


def places(made: Plan) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {each.pod: (each.node, each.devices) for each in made.actions if isinstance(each, Bind)}


def test_ranks_follow_the_tree_and_then_the_devices() -> None:
    given = plan(("n0", (1,)), ("n1", (0,)), ("n0", (0,)), ("n3", (0,)))
    made = order_ranks(gang(racks(2, 2)), given, Decisions())

    assert list(places(made).values()) == [("n0", (0,)), ("n0", (1,)), ("n1", (0,)), ("n3", (0,))]
    assert all(step.reason.words == places(made)[step.action.seat_changes[0].pod][0] for step in made.steps())


def test_an_order_that_crosses_no_more_is_left_alone() -> None:
    given = plan(("n1", (1,)), ("n1", (0,)), ("n0", (0,)), ("n0", (1,)))

    assert order_ranks(gang(racks(2, 2)), given, Decisions()) is given


def test_a_seat_goes_to_no_pod_of_another_group_which_has_its_own_level() -> None:
    groups = tuple(MemberGroup(f"g{n}", 2, tuple(PODS[n::2]), within=LEAF) for n in range(2))
    seen = world(racks(2, 2), [pod(name, gpus=1, gang="ns/g") for name in PODS], [Gang("ns/g", 4, groups=groups)])
    given = plan(("n0", (1,)), ("n1", (0,)), ("n0", (0,)), ("n3", (0,)))
    made = places(order_ranks(seen, given, Decisions()))

    assert [made[name][0] for name in PODS] == ["n0", "n1", "n0", "n3"]


def test_pods_that_differ_keep_their_seats() -> None:
    given = plan(("n0", (0, 1)), ("n1", (0,)), ("n2", (0, 1)), ("n1", (1,)))
    made = places(order_ranks(gang(racks(2, 2), gpus=(2, 1, 2, 1)), given, Decisions()))

    assert [len(devices) for _, devices in made.values()] == [2, 1, 2, 1]


@pytest.mark.parametrize("seed", range(5))
def test_a_planned_gang_enters_every_leaf_once(seed: int) -> None:
    nodes = racks(3, 4)
    pods = [pod(f"ns/w-{n}", gpus=1, gang="ns/g") for n in range(24)]
    pods += [pod(f"ns/other-{n}", gpus=1, on=f"n{(n * 5 + seed) % 12}", devices=(0,)) for n in range(4)]
    seen = world(nodes, pods[:20] + pods[24:], gangs=[Gang("ns/g", 20)])
    made = decide(seen, Decisions(), deadline_s=60.0, clock=float)
    where = places(made)
    ring = [
        path_of(where[f"ns/w-{n}"][0], {LEAF: f"leaf-{int(where[f'ns/w-{n}'][0][1:]) % 3}"}, LEVELS) for n in range(20)
    ]

    leaves = [path[LEVELS.index(LEAF)] for path in ring]
    assert sum(a != b for a, b in zip(leaves, (*leaves[1:], leaves[0]), strict=True)) == len(set(leaves))
    assert crossings(ring) == crossings(sorted(ring))
