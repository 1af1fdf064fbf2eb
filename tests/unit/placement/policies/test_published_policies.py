"""Preferences of each published policy, on fleets small enough to compute by hand."""

import numpy as np
import pytest

from cluster.arrays import IntArray
from cluster.errors import ConfigError
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.packer import Choice, Packer
from placement.engine.policy import Knowledge
from placement.policies import POLICIES, policy_named
from placement.policies.fgd import gradient_points
from tests.builders.fleet import node, pod, shape, world
from tests.rigs.packing_rivals import RIVALS

A_SHARE = shape(gpus=1, gpu_milli=500, cpu_milli=1000)
A_GPU = shape(gpus=1, cpu_milli=1000)


def chosen(name: str, seen: Snapshot, asked: PodShape, expected: tuple[PodShape, ...] = ()) -> Choice:
    choice = Packer(seen, policy_named(name, Knowledge(seen, expected))).choose(asked)
    assert choice is not None
    return choice


def test_a_name_that_is_no_policy_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"choose from .*bestfit.*fgd"):
        policy_named("worstfit", Knowledge(world([])))


@pytest.mark.parametrize("name", sorted({*POLICIES, *RIVALS} - {"random"}))
def test_the_same_pods_go_to_the_same_places_every_time(name: str) -> None:
    def places() -> list[Choice | None]:
        seen = world([node(f"n{n}", gpus=4) for n in range(3)])
        packer = Packer(seen, policy_named(name, Knowledge(seen, (A_SHARE, A_GPU), seed=5)))
        found = []
        for asked in (A_SHARE, A_GPU, A_SHARE, A_GPU, A_SHARE):
            found.append(packer.choose(asked))
            if found[-1] is not None:
                packer.place(asked, found[-1])
        return found

    assert places() == places()


def test_best_fit_leaves_the_least_cpu_and_gpu() -> None:
    # Left over on a: 95 of 128 cores, 3 of 8 GPUs: 0.5 · 0.742 + 0.5 · 0.375 = 0.559, 44 points of a hundred.
    # On b: 31 cores, 5 GPUs: 0.5 · 0.242 + 0.5 · 0.625 = 0.434, 56 points.
    seen = world([node("a", gpus=4, cpu_milli=96_000), node("b", gpus=6, cpu_milli=32_000)])

    choice = chosen("bestfit", seen, A_GPU)

    assert (choice.node, choice.cost) == (1, -56.0)


def test_best_fit_takes_the_fullest_device_that_still_fits() -> None:
    seen = world(
        [node("a", gpus=3)],
        [
            pod("p", gpus=1, gpu_milli=300, on="a", devices=(1,)),
            pod("q", gpus=1, gpu_milli=600, on="a", devices=(2,)),
        ],
    )

    assert chosen("bestfit", seen, A_SHARE).devices == 0b010  # 700 left on device 1; device 2 has only 400


def test_dot_product_avoids_what_the_pod_has_plenty_of() -> None:
    # The pod asks for GPU above all, so free GPU weighs more than free CPU.
    # a: (8/128)·(1/128) + (8/8)·(1/8) = 0.125, halved 0.063: 93 points; b: (96/128)·(1/128) + (2/8)·(1/8) = 0.037: 98.
    seen = world([node("a", gpus=8, cpu_milli=8_000), node("b", gpus=2, cpu_milli=96_000)])

    choice = chosen("dotprod", seen, A_GPU)

    assert (choice.node, choice.cost) == (1, -98.0)


def test_packing_prefers_a_device_in_use_then_a_node_in_use_then_a_small_idle_node() -> None:
    nodes = [node("idle-8", gpus=8), node("idle-2", gpus=2), node("used", gpus=4), node("shared", gpus=1)]
    used = pod("p", gpus=1, on="used", devices=(0,))
    shared = pod("q", gpus=1, gpu_milli=400, on="shared", devices=(0,))

    def points(seen: Snapshot) -> tuple[int, float]:
        choice = chosen("packing", seen, A_SHARE)
        return choice.node, choice.cost

    assert points(world(nodes, [used, shared])) == (3, -94.0)  # 60 % of the device in use is free: 100 - 60 // 10
    assert points(world(nodes, [used])) == (2, -49.0)  # one idle device of a node in use: 50 - 1
    assert points(world(nodes)) == (3, -32.0)  # the smallest idle node: 33 - 1


def test_clustering_prefers_nodes_that_run_the_same_kind_only() -> None:
    nodes = [node("others", gpus=4), node("mixed", gpus=4), node("same", gpus=4), node("idle", gpus=4)]
    pods = [
        pod("o", gpus=2, on="others", devices=(0, 1)),
        pod("m", gpus=2, on="mixed", devices=(0, 1)),
        pod("n", gpus=1, on="mixed", devices=(2,)),
        pod("s", gpus=1, on="same", devices=(0,)),
    ]

    def best(*gone: str) -> int:
        seen = world([n for n in nodes if n.name not in gone], [p for p in pods if p.node not in gone])
        return ["others", "mixed", "same", "idle"].index(seen.nodes.names[chosen("clustering", seen, A_GPU).node])

    assert best() == 2
    assert best("same") == 1
    assert best("same", "mixed") == 3  # no GPU pod at all is better than only others
    assert best("same", "mixed", "idle") == 0


def test_clustering_forgets_a_kind_when_its_last_pod_leaves() -> None:
    seen = world([node("a", gpus=4), node("b", gpus=4)], [pod("p", gpus=1, on="b", devices=(0,))])
    packer = Packer(seen, policy_named("clustering", Knowledge(seen)))
    before = packer.choose(A_GPU)
    packer.remove(pod("p", gpus=1).shape, 1, 0b1)

    after = packer.choose(A_GPU)

    assert before is not None
    assert after is not None
    assert (before.node, after.node) == (1, 0)


def test_a_new_draft_begins_with_the_pods_that_run_whatever_was_tried_before() -> None:
    seen = world([node("a", gpus=4), node("b", gpus=4)], [pod("p", gpus=1, on="b", devices=(0,))])
    policy = policy_named("clustering", Knowledge(seen))
    tried = Packer(seen, policy)
    tried.place(A_GPU, Choice(0, 0b1, 0.0))
    tried.remove(A_GPU, 1, 0b1)

    choice = Packer(seen, policy).choose(A_GPU)

    assert choice is not None
    assert choice.node == 1


def test_fgd_keeps_whole_gpus_whole_when_whole_gpus_are_what_usually_comes() -> None:
    # Half a GPU on the idle device would make 500 milli a fragment for pods that want a whole one; on the device that
    # is half used already, the 500 that were a fragment are used up.
    seen = world([node("a", gpus=2)], [pod("p", gpus=1, gpu_milli=500, on="a", devices=(1,))])

    choice = chosen("fgd", seen, A_SHARE, expected=(A_GPU,))

    # F before: 500 of device 1; after: 0. The fragment shrinks by half a GPU: sigmoid(0.5) = 0.622, 62 points.
    assert (choice.devices, choice.cost) == (0b10, -62.0)


def test_fgd_leaves_gpus_that_lack_cpu_to_pods_that_need_little() -> None:
    # a's two GPUs have 2 cores beside them: typical pods, which want 8, cannot use them, so they are fragments already.
    seen = world([node("a", gpus=2, cpu_milli=2_000), node("b", gpus=2, cpu_milli=32_000)])

    choice = chosen("fgd", seen, shape(gpus=1, cpu_milli=1000), expected=(shape(gpus=1, cpu_milli=8000),))

    # On a, F falls from 2 GPUs to 1: sigmoid(1) = 0.731; on b it stays 0: 50 points.
    assert (choice.node, choice.cost) == (0, -73.0)


def test_growth_of_the_fragment_becomes_whole_points_whatever_its_last_digit() -> None:
    # sigmoid(0) = 0.5; a growth of a ten-millionth of a milli, which is how sums of shares differ, changes nothing.
    growth = np.array([0.0, 1e-8, -1e-8, 1000.0])

    assert gradient_points(growth).tolist() == [50.0, 50.0, 50.0, 26.0]  # 1 / (1 + e) = 0.2689


def test_random_spreads_evenly_over_nodes_and_devices() -> None:
    seen = world([node("a", gpus=2), node("b", gpus=2)])
    packer = Packer(seen, policy_named("random", Knowledge(seen, seed=1)))

    drawn: list[Choice | None] = [packer.choose(A_SHARE) for _ in range(400)]

    places: IntArray = np.zeros((2, 2), dtype=np.int64)
    for choice in drawn:
        assert choice is not None
        places[choice.node, choice.devices - 1] += 1
    # 400 draws of 4 places: 100 each, standard deviation sqrt(400 · 0.25 · 0.75) = 8.7; five of them are 43
    assert np.abs(places - 100).max() <= 43
