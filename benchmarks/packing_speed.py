"""Time of placement decisions on partly used fleets of increasing size."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.cases import Row, case
from cluster.arrays import FloatArray, IntArray, Names
from cluster.nodes import NodeTable
from cluster.snapshot import PodTable, Snapshot
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.openb.generator import generate, trace_of
from simulator.packing.replay import gpu_milli_of, published_stream


@case(
    "packing-speed",
    "Time of a placement decision of three policies on generated fleets of 1,213 to 20,000 nodes.",
    quick={"sizes": (100,), "loads": (30,), "policies": ("bestfit",), "warm_up": 5, "decisions": 20},
)
def packing_speed(
    *,
    policies: Sequence[str] = ("bestfit", "fgd", "tonnage"),
    sizes: Sequence[int] = (1213, 5000, 20_000),
    loads: Sequence[int] = (50, 90),
    warm_up: int = 500,
    decisions: int = 2000,
    seeds: Sequence[int] = (42,),
) -> Iterator[Row]:
    """A row for each policy, load and size; one process, decision by decision.

    A policy fills a generated fleet up to the load; nodes and running pods are then repeated up to each size. Then pods
    arrive: `first` is the first decision with an empty cache; the warm-up is not counted; the rest is timed.
    """
    for seed in seeds:
        trace = trace_of(generate(1213, seed=seed), {})
        for policy in policies:
            for load in loads:
                used = filled(trace, policy, load, seed)
                for size in sizes:
                    times_ms = 1000.0 * decision_s(used, policy, size, warm_up + decisions, seed)
                    kept = times_ms[warm_up:]
                    yield {
                        "policy": policy,
                        "load_pct": load,
                        "nodes": size,
                        "decision_ms": {
                            "mean": round(float(kept.mean()), 4),
                            "p50": round(float(np.quantile(kept, 0.5)), 4),
                            "p99": round(float(np.quantile(kept, 0.99)), 4),
                            "first": round(float(times_ms[0]), 4),
                        },
                    }


def filled(trace: Snapshot, policy_name: str, load_pct: float, seed: int) -> Snapshot:
    """The trace's fleet with running pods up to this load of the GPUs, percent."""
    packer = _packer(trace, trace, policy_name, seed)
    _, gpu_milli = gpu_milli_of(trace.pods)
    most = load_pct * 10.0 * float(trace.nodes.gpus.sum())
    held: list[tuple[int, int, int]] = []
    in_use = 0
    for index in published_stream(trace, seed):
        shape = trace.pods.shapes[index]
        packer.policy.arrived(shape)
        packer.policy.upkeep(packer.ledger)
        choice = packer.choose(shape)
        if choice is None:
            continue
        packer.place(shape, choice)
        held.append((int(index), choice.node, choice.devices))
        in_use += int(gpu_milli[index])
        if in_use >= most:
            break
    columns = np.array(held, dtype=np.int64).reshape(-1, 3).T
    return replace(trace, pods=_running(trace.pods, columns[0], columns[1], columns[2]))


def _running(pods: PodTable, shape: IntArray, node: IntArray, devices: IntArray) -> PodTable:
    count = len(shape)
    return PodTable(
        names=Names(f"running/{number}" for number in range(count)),
        shape=shape,
        shapes=pods.shapes,
        node=node,
        devices=devices,
        priority=np.zeros(count, dtype=np.int64),
        gang=np.full(count, -1, dtype=np.int64),
        owner=("",) * count,
        movable=np.ones(count, dtype=bool),
    )


def repeated(used: Snapshot, size: int) -> Snapshot:
    """The fleet repeated up to `size` nodes, each with its running pods."""
    nodes, pods = used.nodes, used.pods
    row = np.arange(size) % len(nodes)
    copies = [np.flatnonzero(pods.node + start < size) for start in range(0, size, len(nodes))]
    held = np.concatenate(copies)
    at = np.concatenate([pods.node[copy] + turn * len(nodes) for turn, copy in enumerate(copies)])
    return replace(
        used,
        nodes=NodeTable(
            names=Names(f"node-{number:06d}" for number in range(size)),
            cpu_milli=nodes.cpu_milli[row],
            memory_bytes=nodes.memory_bytes[row],
            gpus=nodes.gpus[row],
            gpu_type=nodes.gpu_type[row],
            schedulable=nodes.schedulable[row],
            labels=tuple(nodes.labels[int(n)] for n in row),
            taints=tuple(nodes.taints[int(n)] for n in row),
        ),
        pods=_running(pods, pods.shape[held], at, pods.devices[held]),
    )


def decision_s(used: Snapshot, policy_name: str, size: int, count: int, seed: int) -> FloatArray:
    """Seconds of each decision on the repeated fleet. Arrivals are drawn from the running pods."""
    fleet = repeated(used, size)
    packer = _packer(fleet, used, policy_name, seed)
    drawn = np.random.default_rng([seed, size]).choice(used.pods.shape, count)
    spent_s = np.zeros(count)
    for number, index in enumerate(drawn):
        shape = used.pods.shapes[index]
        began = time.perf_counter()
        packer.policy.arrived(shape)
        choice = packer.choose(shape)
        if choice is not None:
            packer.place(shape, choice)
        spent_s[number] = time.perf_counter() - began
        packer.policy.upkeep(packer.ledger)
    return spent_s


def _packer(fleet: Snapshot, trace: Snapshot, policy_name: str, seed: int) -> Packer:
    expected = tuple(trace.pods.shapes[index] for index in trace.pods.shape)
    return Packer.of(fleet, policy_named(policy_name, Knowledge(fleet, expected, seed)), content_rank(fleet, seed))
