"""Elastic gangs over time: they start at their minimum, lose surplus members first, and grow back."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang
from controller.cycle import carry_out
from controller.guard import Limits, guard
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from simulator.world import SimulatedWorld
from tests.builders.fleet import node, pod, world

STEPS = 8


def elastic_fleet(chance: Random) -> Snapshot:
    """Three to six nodes, elastic gangs of priority 1, single pods of all priorities."""
    nodes = [node(f"n{n}", gpus=4) for n in range(chance.randint(3, 6))]
    gangs, pods = list[Gang](), []
    for number in range(chance.randint(1, 3)):
        size = chance.randint(2, 8)
        gangs.append(Gang(f"ns/g{number}", chance.randint(1, size), priority=1))
        width = chance.choice((1, 1, 2))
        pods += [pod(f"ns/g{number}-{n}", width, gang=f"ns/g{number}", priority=1) for n in range(size)]
    pods += [pod(f"ns/s{n}", chance.choice((1, 2, 4)), priority=chance.choice((0, 2, 3))) for n in range(6)]
    return world(nodes, pods, gangs)


def planned(seen: Snapshot) -> Snapshot:
    simulated = SimulatedWorld(seen)
    carry_out(simulated, guard(seen, pack(seen, Packer(seen, BestFit())), Limits()))
    return simulated.observe()


def running(seen: Snapshot, gang: int) -> int:
    return int(((seen.pods.gang == gang) & (seen.pods.node != PENDING)).sum())


@pytest.mark.parametrize("seed", range(50))
def test_no_gang_runs_below_its_minimum_by_our_hand(seed: int) -> None:
    """Of 500 histories none. Nodes come and go, pods of higher priority come and go."""
    chance = Random(seed)  # noqa: S311 - not for secrets
    seen, hidden = elastic_fleet(chance), np.zeros(0)
    hidden = np.array([chance.random() < 0.3 and name.startswith("ns/s") for name in seen.pods.names])
    for _ in range(STEPS):
        up = np.array([chance.random() < 0.8 for _ in range(len(seen.nodes))])
        lost = (seen.pods.node != PENDING) & ~up[seen.pods.node]
        gone = lost | (np.array([chance.random() < 0.2 for _ in hidden]) & (seen.pods.gang < 0))
        pods = replace(
            seen.pods, node=np.where(gone, PENDING, seen.pods.node), devices=np.where(gone, 0, seen.pods.devices)
        )
        before = replace(seen, nodes=replace(seen.nodes, schedulable=up), pods=pods)
        seen = planned(before)
        for number, gang in enumerate(seen.gangs):
            now, was = running(seen, number), running(before, number)
            assert now == 0 or now >= min(gang.min_members, was), f"seed {seed}: {gang.name} {was} -> {now}"


def test_surplus_members_leave_first_and_come_back() -> None:
    gang = Gang("ns/g", 2, priority=1)
    members = [pod(f"ns/g-{n}", 1, gang="ns/g", priority=1) for n in range(4)]
    alone, boss = [pod("ns/alone", 1, priority=1)], [pod("ns/boss", 2, priority=9)]
    full = planned(world([node("a", gpus=5)], [*members, *alone], [gang]))

    shrunk = planned(full_with(full, world([node("a", gpus=5)], [*members, *alone, *boss], [gang])))
    grown = planned(without(shrunk, "ns/boss"))

    assert running(full, 0) == 4
    assert running(shrunk, 0) == 2
    assert shrunk.pods.node[shrunk.pods.names.row("ns/alone") or 0] != PENDING, "a single pod is lost whole"
    assert running(grown, 0) == 4


def full_with(full: Snapshot, more: Snapshot) -> Snapshot:
    """The larger world with the pods of the smaller one where they run."""
    node, devices = more.pods.node.copy(), more.pods.devices.copy()
    node[: len(full.pods)], devices[: len(full.pods)] = full.pods.node, full.pods.devices
    return replace(more, pods=replace(more.pods, node=node, devices=devices))


def without(seen: Snapshot, name: str) -> Snapshot:
    return replace(seen, pods=seen.pods.only(np.array([r for r, each in enumerate(seen.pods.names) if each != name])))
