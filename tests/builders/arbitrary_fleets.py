"""Arbitrary small fleets for properties: mixed nodes, running and pending pods, gangs, priorities."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang
from tests.builders.fleet import Node, Pod, daemon_pods, node, pod, world

RACK = "topology.tonnage.dev/rack"
ASKS = ((0, 0), (1, 200), (1, 500), (1, 1000), (2, 1000), (4, 1000))


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    return [
        node(
            f"n{i}",
            gpus=draw(st.sampled_from((0, 1, 4, 8))),
            gpu_type=draw(st.sampled_from(("A100", "L4"))),
            cpu_milli=draw(st.sampled_from((8_000, 32_000))),
            labels={RACK: draw(st.sampled_from("xy"))},
            schedulable=draw(st.integers(0, 9)) > 0,
        )
        for i in range(draw(st.integers(1, 6)))
    ]


@st.composite
def pending_pods(draw: st.DrawFn, gangs: int) -> list[Pod]:
    pods = []
    for i in range(draw(st.integers(0, 14))):
        gpus, milli = draw(st.sampled_from(ASKS))
        gang = draw(st.integers(-2, gangs - 1))
        pods.append(
            pod(
                f"p{i}",
                gpus,
                gpu_milli=milli,
                cpu_milli=draw(st.sampled_from((500, 4_000))),
                gpu_types=draw(st.sampled_from(((), (), ("A100",)))) if gpus else (),
                priority=draw(st.sampled_from((0, 0, 10))),
                gang=f"g{gang}" if gang >= 0 else "",
            )
        )
    return pods


@st.composite
def fleets(draw: st.DrawFn) -> Snapshot:
    """A cluster where all is pending but the pods of a DaemonSet, which there may be."""
    count = draw(st.integers(0, 3))
    gangs = [
        Gang(
            f"g{i}",
            min_members=draw(st.integers(1, 4)),
            within=draw(st.sampled_from((None, RACK))),
            prefer_within=draw(st.sampled_from((None, RACK))),
            priority=draw(st.sampled_from((0, 5))),
        )
        for i in range(count)
    ]
    machines = draw(nodes())
    daemons = daemon_pods([each.name for each in machines]) if draw(st.booleans()) else []
    return world(machines, [*draw(pending_pods(count)), *daemons], gangs)


def with_importance_shuffled(seen: Snapshot, seed: int) -> Snapshot:
    """The same cluster after people changed their minds about priorities: now preemption has work."""
    priority = np.random.default_rng(seed).choice((0, 10, 20), size=len(seen.pods))
    return replace(seen, pods=replace(seen.pods, priority=priority.astype(np.int64)))


def with_pods_lost(seen: Snapshot, seed: int) -> Snapshot:
    """The same cluster after a third of its running pods were lost and wait again: gangs now run in part."""
    lost = (seen.pods.node != PENDING) & (np.random.default_rng(seed).random(len(seen.pods)) < 1 / 3)
    node, devices = np.where(lost, PENDING, seen.pods.node), np.where(lost, 0, seen.pods.devices)
    return replace(seen, pods=replace(seen.pods, node=node, devices=devices))
