"""Gangs start whole or not at all, in ten thousand random clusters."""

import numpy as np
import pytest

from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Node, Pod, node, pod, world

RACK = "topology.tonnage.dev/rack"


def packed(seen: Snapshot) -> Plan:
    return pack(seen, Packer(seen, BestFit()))


def members(gang: str, count: int, gpus: int, **rest: object) -> list[Pod]:
    return [pod(f"{gang}-{i}", gpus, gang=gang, **rest) for i in range(count)]


def racked(name: str, rack: str, gpus: int) -> Node:
    return node(name, gpus=gpus, labels={RACK: rack})


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_no_gang_starts_in_part_in_10_000_random_clusters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for case in range(2_500):
        fleet = [racked(f"n{i}", "xyz"[i % 3], int(rng.choice((1, 2, 4, 8)))) for i in range(int(rng.integers(1, 5)))]
        gangs, pods = [], []
        for g in range(int(rng.integers(1, 4))):
            count = int(rng.integers(1, 6))
            within, prefer = (RACK if rng.random() < 0.3 else None for _ in range(2))
            gangs.append(Gang(f"g{g}", int(rng.integers(1, count + 1)), within, prefer, int(rng.integers(0, 2))))
            pods += members(f"g{g}", count, gpus=int(rng.choice((1, 2, 4))), priority=gangs[-1].priority)
        seen = world(fleet, pods, gangs)
        later = seen.after(packed(seen).actions)
        for index, gang in enumerate(gangs):
            running = int((later.pods.node[later.pods.gang == index] != PENDING).sum())
            assert running == 0 or running >= gang.min_members, (
                f"case {case} of seed {seed}: {gang} runs with {running}"
            )
