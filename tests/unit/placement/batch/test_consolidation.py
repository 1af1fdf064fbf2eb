"""Emptying nodes where that pays."""

from hypothesis import given, settings, strategies as st

from cluster.actions import Move
from cluster.plans import Phase, Plan
from cluster.snapshot import Snapshot
from controller.guard import Limits, guard
from placement.batch.consolidation import candidates, emptying
from placement.engine.packer import Packer
from placement.move_price import MovePrice
from placement.policies.published import BestFit
from tests.builders.fleet import Node, Pod, node, pod, world

FREE = MovePrice(per_pod_usd=0.0, per_gpu_usd=0.0, stay_h=1.0)


def emptied(seen: Snapshot, price: MovePrice = FREE, most_moves: int = 100) -> tuple[Phase, ...]:
    packer = Packer(seen, BestFit())
    return emptying(seen, packer, candidates(seen), price, most_moves=most_moves)


def moves(seen: Snapshot, price: MovePrice = FREE, most_moves: int = 100) -> list[tuple[str, str]]:
    phases = emptied(seen, price, most_moves)
    return [(s.action.pod, s.action.node) for s in Plan(phases=phases).steps() if isinstance(s.action, Move)]


def halves(**about: object) -> Snapshot:
    """Two nodes of 4 $ an hour, half full each: one could run both pods."""
    nodes = [node("a", gpus=4), node("b", gpus=4)]
    pods = [
        pod("p", gpus=2, on="a", devices=(0, 1), **({"movable": True} | about)),
        pod("q", gpus=2, on="b", devices=(2, 3), movable=True),
    ]
    return world(nodes, pods, prices={"A100": 1.0})


def test_a_node_is_emptied_when_its_pods_fit_beside_others() -> None:
    assert moves(halves()) == [("p", "b")]


def test_what_costs_more_to_move_than_the_node_stays() -> None:
    """The host part makes a node dearer than 4 GPUs at 1 $: 96 cores and 512 GiB are 4.93 $ an hour; two GPUs move."""
    assert moves(halves(), MovePrice(per_pod_usd=0.0, per_gpu_usd=2.4, stay_h=1.0)) == [("p", "b")]
    assert moves(halves(), MovePrice(per_pod_usd=0.0, per_gpu_usd=2.5, stay_h=1.0)) == []


def test_pods_that_may_not_be_moved_keep_their_node() -> None:
    assert moves(halves(movable=False)) == [("q", "a")]


def test_no_idle_node_is_started_to_empty_another() -> None:
    nodes = [node("a", gpus=4), node("idle", gpus=2, cpu_milli=1_000, memory_bytes=2**30)]

    assert moves(world(nodes, [pod("p", gpus=2, on="a", devices=(0, 1), movable=True)])) == []


def test_no_more_moves_than_allowed() -> None:
    assert moves(halves(), most_moves=0) == []


@st.composite
def running_fleets(draw: st.DrawFn) -> Snapshot:
    nodes: list[Node] = [node(f"n{i}", gpus=4, cpu_milli=8_000) for i in range(draw(st.integers(1, 5)))]
    pods: list[Pod] = []
    for i, each in enumerate(nodes):
        pods += [
            pod(f"p{i}{d}", gpus=1, on=each.name, devices=(d,), movable=draw(st.booleans()), cpu_milli=1_500)
            for d in range(draw(st.integers(0, 4)))
        ]
    return world(nodes, pods)


@settings(max_examples=60)
@given(running_fleets())
def test_moves_keep_every_rule_and_leave_the_emptied_nodes_empty(seen: Snapshot) -> None:
    phases = emptied(seen)

    checked = guard(seen, Plan(phases=phases), Limits(max_evictions_share=1.0, max_evictions_floor=100))

    assert checked.refused == ()
    after = seen.after(checked.actions)
    left = {step.action.from_node for step in checked.steps() if isinstance(step.action, Move)}
    assert not left & {after.nodes.names[n] for n in after.pods.node.tolist()}


@settings(max_examples=30)
@given(running_fleets())
def test_what_was_consolidated_is_not_consolidated_again(seen: Snapshot) -> None:
    after = seen
    for _ in range(len(seen.nodes) + 1):
        actions = [s.action for p in emptied(after) for s in p.steps]
        after = after.after(actions)

    assert emptied(after) == ()
