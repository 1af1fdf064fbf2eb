"""Simulated world: it refuses what no real node could do, whatever the deciders and the guard let pass."""

import pytest

from cluster.actions import Action, Bind, Evict, Move
from cluster.errors import ActionError
from cluster.nodes import NodeTaint
from simulator.world import SimulatedWorld
from tests.builders.fleet import GIB, node, pod, world


def there() -> SimulatedWorld:
    nodes = [
        node("a", gpus=2, cpu_milli=4000, memory_bytes=4 * GIB),
        node("b", gpus=8),
        node("closed", gpus=1, schedulable=False),
        node("tainted", gpus=1, taints=(NodeTaint("spot"),)),
    ]
    pods = [
        pod("runs", 1, on="a", devices=(0,)),
        pod("half", 1, gpu_milli=600, on="a", devices=(1,)),
        pod("waits", 1),
        pod("wants-half", 1, gpu_milli=500),
        pod("wide", 2),
        pod("busy", cpu_milli=3000),
        pod("big", memory_bytes=3 * GIB),
    ]
    return SimulatedWorld(world(nodes, pods))


@pytest.mark.parametrize(
    "action",
    [
        Bind("waits", "a", (0,)),
        Bind("wants-half", "a", (1,)),
        Bind("waits", "a", (5,)),
        Bind("waits", "b", (9,)),
        Bind("wide", "b", (0,)),
        Bind("busy", "a"),
        Bind("big", "a"),
        Bind("waits", "closed", (0,)),
        Bind("waits", "tainted", (0,)),
        Bind("runs", "b", (0,)),
        Evict("runs", "b"),
        Evict("waits", "a"),
        Move("runs", "b", "b", (0,)),
        Move("waits", "a", "b", (0,)),
        Evict("ghost", "a"),
    ],
    ids=str,
)
def test_what_no_node_could_do_is_refused_and_changes_nothing(action: Action) -> None:
    simulated = there()
    before = simulated.observe()

    (error,) = simulated.apply([action])

    assert isinstance(error, ActionError)
    assert simulated.observe().pods.node.tolist() == before.pods.node.tolist()


def test_what_a_node_has_left_may_be_taken() -> None:
    actions = [
        Evict("runs", "a"),
        Bind("waits", "a", (0,)),
        Move("half", "a", "b", (7,)),
        Bind("wants-half", "b", (0,)),
    ]

    assert there().apply(actions) == [None] * 4
