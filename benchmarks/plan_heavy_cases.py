"""Heavy-tailed fleets and batches, and the requests of a published trace: cases that the other generator does not draw.

A few large gangs and classes hold most of the pods, GPU types differ sixtyfold in price, shares of devices are any
thousandths, and the fleet may be in use and in fragments.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.plan_cases import GIB, RACK, Server, fleet, pending_pods
from cluster.arrays import BoolArray, FloatArray
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, Gang, PodShape
from placement.batch.ladder import BatchSettings, plan_batch, seated
from placement.batch.lp.columns import Memory
from simulator.openb.trace_reader import OPENB_PRICES, read_trace


@dataclass(frozen=True, slots=True)
class HeavyCase:
    """Size of a drawn case."""

    nodes: int
    pods: int
    classes: int
    in_use_share: float = 0.0
    """Fraction of the batch of an earlier day that still runs; 0: the fleet is idle."""


def heavy_batch(case: HeavyCase, seed: int) -> Snapshot:
    """Fleet with a batch whose classes, gangs and prices have heavy tails."""
    chance = np.random.default_rng([seed, case.nodes, case.pods])
    servers = _servers(chance)
    empty = fleet(case.nodes, (), servers)
    shapes = tuple(_shape(chance, servers) for _ in range(case.classes))
    weight: FloatArray = np.arange(1, case.classes + 1, dtype=np.float64) ** -1.1
    before = _drawn(empty, shapes, weight, case.pods, chance)
    if not case.in_use_share:
        return before
    earlier = seated(before, plan_batch(before, Memory(), BatchSettings(), rung="best-fit").seats)
    stays = _whole_gangs(before, chance.random(case.pods) < case.in_use_share, chance, case.in_use_share)
    node, devices = np.where(stays, earlier.pods.node, PENDING), np.where(stays, earlier.pods.devices, 0)
    return replace(earlier, pods=replace(earlier.pods, node=node, devices=devices))


def random_case(seed: int) -> HeavyCase:
    """Small case of any kind: with room or without, idle or in use."""
    chance = np.random.default_rng([seed, 17])
    nodes = int(chance.integers(6, 60))
    in_use = float(chance.choice((0.0, 0.0, 0.3, 0.6)))
    return HeavyCase(nodes, int(nodes * chance.uniform(1.5, 12)), int(chance.integers(4, 30)), in_use)


def openb_batch(folder: Path, pods: int, seed: int) -> Snapshot:
    """Pods of the openb trace, drawn with replacement, pending on its fleet of 1,213 GPU nodes."""
    seen = read_trace(folder / "openb_node_list_gpu_node.csv", folder / "openb_pod_list_default.csv", OPENB_PRICES)
    drawn = np.random.default_rng([seed, pods]).integers(0, len(seen.pods), pods)
    names = tuple(f"trace/pod-{row:06d}" for row in range(pods))
    return replace(seen, pods=pending_pods(seen.pods.shape[drawn], np.full(pods, -1), seen.pods.shapes, names))


def _servers(chance: np.random.Generator) -> tuple[Server, ...]:
    kinds = int(chance.integers(3, 9))
    share = chance.pareto(1.2, kinds) + 0.1
    share /= share.sum()
    servers = []
    for number in range(kinds):
        gpus = int(chance.choice((0, 1, 2, 4, 8, 8, 16) if number else (8,)))
        usd = float(np.exp(chance.uniform(np.log(0.1), np.log(6.0))))
        servers.append(
            Server(
                f"G{number}" if gpus else "",
                gpus,
                int(chance.choice((16, 32, 64, 96, 128))) * max(1, gpus // 4),
                int(chance.choice((64, 128, 256, 512))) * max(1, gpus // 2),
                usd if gpus else 0.0,
                float(share[number]),
            )
        )
    return tuple(servers)


def _shape(chance: np.random.Generator, servers: tuple[Server, ...]) -> PodShape:
    types = [server for server in servers if server.gpus]
    kind = int(chance.integers(0, 4))
    cores, gib = float(chance.lognormal(1.0, 1.0)), float(chance.lognormal(2.0, 1.2))
    ask = int(max(100, cores * 1000)) // 10 * 10, max(1, int(gib)) * GIB
    if kind == 0 or not types:
        return PodShape(*ask, 0, 0, ())
    named = tuple(sorted({types[int(chance.integers(0, len(types)))].gpu_type})) if chance.random() < 0.3 else ()
    if kind == 1:
        return PodShape(*ask, 1, int(chance.integers(1, 100)) * 10, named)
    return PodShape(*ask, int(chance.choice((1, 1, 2, 4, 8))), WHOLE_GPU_MILLI, named)


def _drawn(
    empty: Snapshot, shapes: tuple[PodShape, ...], weight: FloatArray, pods: int, chance: np.random.Generator
) -> Snapshot:
    shape = chance.choice(len(shapes), size=pods, p=weight / weight.sum())
    gang = np.full(pods, -1, dtype=np.int64)
    gangs: list[Gang] = []
    free = chance.permutation(pods)[: int(0.5 * pods)].tolist()
    while len(free) > 1:
        size = min(len(free), 2 + int(chance.pareto(0.9)), max(2, pods // 10))
        members = [free.pop() for _ in range(size)]
        if chance.random() < 0.6:
            shape[members] = shape[members[0]]  # equal members
        gang[members] = len(gangs)
        within = RACK if chance.random() < 0.1 else None
        gangs.append(Gang(f"batch/gang-{len(gangs):04d}", min_members=size, within=within))
    names = tuple(f"batch/pod-{row:06d}" for row in range(pods))
    return replace(empty, pods=pending_pods(shape, gang, shapes, names), gangs=tuple(gangs))


def _whole_gangs(seen: Snapshot, stays: BoolArray, chance: np.random.Generator, share: float) -> BoolArray:
    """Pods that stay, gangs whole."""
    of_gang = np.append(chance.random(len(seen.gangs)) < share, False)
    kept: BoolArray = np.where(seen.pods.gang >= 0, of_gang[seen.pods.gang], stays)
    return kept
