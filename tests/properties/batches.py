"""Arbitrary small batches, and the dearest and surest way to plan them: every assignment there is."""

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang
from placement.batch.ladder import BatchPlan
from placement.batch.problem import Batch
from tests.builders.fleet import Node, Pod, node, pod, world
from tests.builders.plan_check import Seat

PRICES = {"A100": 2.0, "L4": 0.5}
RACK = "topology.tonnage.dev/rack"


@st.composite
def tiny_batches(draw: st.DrawFn) -> Snapshot:
    """Two to four idle nodes and up to six pods of few shapes: few enough to try everything."""
    nodes: list[Node] = [
        node(
            f"n{i}",
            gpus=draw(st.sampled_from((0, 1, 2))),
            gpu_type=draw(st.sampled_from(("A100", "L4"))),
            cpu_milli=draw(st.sampled_from((4_000, 8_000))),
        )
        for i in range(draw(st.integers(2, 4)))
    ]
    asks = draw(st.lists(st.sampled_from(range(6)), min_size=1, max_size=6))
    shapes = ((0, None, 2_000), (0, None, 3_000), (1, 1000, 1_000), (1, 400, 1_000), (2, 1000, 2_000), (1, 600, 3_000))
    pods: list[Pod] = []
    for i, ask in enumerate(asks):
        gpus, milli, cpu = shapes[ask]
        pods.append(pod(f"p{i}", gpus, gpu_milli=milli, cpu_milli=cpu))
    return world(nodes, pods, prices=PRICES)


@st.composite
def batches(draw: st.DrawFn) -> Snapshot:
    """Up to eight nodes, some in use or closed; up to twenty pods, some in gangs, some of those within a rack."""
    nodes = [
        node(
            f"n{i}",
            gpus=draw(st.sampled_from((0, 2, 4))),
            gpu_type=draw(st.sampled_from(("A100", "L4"))),
            cpu_milli=draw(st.sampled_from((8_000, 32_000))),
            labels={RACK: draw(st.sampled_from("xy"))},
            schedulable=draw(st.integers(0, 7)) > 0,
        )
        for i in range(draw(st.integers(1, 8)))
    ]
    gangs = [
        Gang(
            f"g{i}",
            min_members=draw(st.integers(1, 4)),
            within=draw(st.sampled_from((None, None, RACK))),
            prefer_within=draw(st.sampled_from((None, None, RACK))),
            priority=draw(st.sampled_from((0, 5))),
        )
        for i in range(draw(st.integers(0, 3)))
    ]
    pods: list[Pod] = [
        pod(f"r{n}", on=each.name, cpu_milli=1_000) for n, each in enumerate(nodes) if draw(st.integers(0, 2)) == 0
    ]
    for i in range(draw(st.integers(0, 20))):
        gpus, milli = draw(st.sampled_from(((0, 0), (1, 300), (1, 500), (2, 500), (1, 1000), (2, 1000), (4, 1000))))
        gang = draw(st.integers(-3, len(gangs) - 1))
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
    return world(nodes, pods, gangs, prices=PRICES)


def seats_of(plan: BatchPlan) -> list[Seat]:
    columns = (plan.seats.row.tolist(), plan.seats.node.tolist(), plan.seats.devices.tolist())
    return list(zip(*columns, strict=True))


def cheapest(snapshot: Snapshot, batch: Batch) -> float:
    """The least that any plan costs, found by trying every node for every pod (gangs are not looked at)."""
    waiting = np.repeat(np.arange(len(batch.shapes)), batch.pods).tolist()
    free = snapshot.free()
    start = tuple(
        (int(free.cpu_milli[n]), tuple(int(m) for m in free.gpu_milli[n])) for n in range(len(snapshot.nodes))
    )
    cache: dict[tuple[object, ...], float] = {}

    def best(at: int, rooms: tuple[tuple[int, tuple[int, ...]], ...], runs: int) -> float:
        if at == len(waiting):
            return sum(float(batch.node_usd[n]) for n in range(len(rooms)) if runs >> n & 1 and not batch.in_use[n])
        key = (at, rooms, runs)
        if key not in cache:
            c = waiting[at]
            costs = [best(at + 1, rooms, runs) + float(batch.left_out_usd[c])]
            for n, room in enumerate(rooms):
                if batch.eligible[c, n]:
                    costs += [
                        best(at + 1, (*rooms[:n], after, *rooms[n + 1 :]), runs | 1 << n)
                        for after in _taken(room, batch.shapes[c])
                    ]
            cache[key] = min(costs)
        return cache[key]

    return best(0, start, 0)


def _taken(room: tuple[int, tuple[int, ...]], asks: object) -> Iterator[tuple[int, tuple[int, ...]]]:
    """A node's room after a pod, for every choice of devices that makes a difference."""
    cpu_milli, gpus, milli = getattr(asks, "cpu_milli"), getattr(asks, "gpus"), getattr(asks, "gpu_milli")  # noqa: B009
    cpu, devices = room
    if cpu < cpu_milli:
        return
    if not gpus:
        yield cpu - cpu_milli, devices
        return
    seen = set()
    able = [d for d, left in enumerate(devices) if left >= milli]
    for chosen in _choices(able, gpus):
        after = tuple(sorted(left - milli if d in chosen else left for d, left in enumerate(devices)))
        if after not in seen:
            seen.add(after)
            yield cpu - cpu_milli, after


def _choices(able: list[int], count: int) -> Iterator[frozenset[int]]:
    if count == 0:
        yield frozenset()
        return
    for i, first in enumerate(able):
        for rest in _choices(able[i + 1 :], count - 1):
            yield rest | {first}


def placed_rows(snapshot: Snapshot, plan: BatchPlan) -> set[int]:
    return set(plan.seats.row.tolist()) | set(np.flatnonzero(snapshot.pods.node != PENDING).tolist())
