"""Traffic of gangs over a tree of switches: what rank order saves, on generated fleets. Simulated.

python -m benchmarks.traffic
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import write_lines
from cluster.actions import Bind
from cluster.arrays import Names
from cluster.nodes import NodeTable
from cluster.plans import Plan
from cluster.snapshot import PENDING, PodTable, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, Gang, GpuType, PodShape
from controller.deciders import edits
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import PlanRequest, planned
from placement.network_tree import natural

SPINE, LEAF = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"
LEAVES, NODES_PER_LEAF, GPUS = 16, 16, 8
LEAVES_PER_SPINE = 4
GIB = 2**30
SIZES, WIDTHS = (8, 16, 24, 32, 64), (1, 2, 4, 8)
"""Members of a gang, and GPUs of a member."""
ORDERS = ("random", "as packed", "rank order")
KEYS = ("uplinks_per_gang", "uplinks_at_least", "busiest_uplink", "ring_speed", "slowest_ring")
"""Figures of a record, in the order of the table's columns."""
Order = list[str]
"""Node of each rank of a gang."""
Record = dict[str, object]


@dataclass(frozen=True, slots=True)
class Fleet:
    snapshot: Snapshot
    leaf: Mapping[str, str]
    """Leaf of each node."""
    gpus: Mapping[str, int]
    """GPUs of a member of each gang."""


@click.command(context_settings={"show_default": True})
@click.option("--seeds", callback=arguments.seeds, default="1-10", help="Seeds of the fleets and gangs.")
@click.option("--gangs", type=click.IntRange(1, 200), default=20, help="Gangs that come at once.")
@click.option("--near", type=click.FloatRange(0, 1), default=0.5, help="Share of gangs that prefer to share a leaf.")
@click.option("--held", type=click.FloatRange(0, 0.95), default=0.4, help="Share of nodes that hold other pods.")
@click.option("--oversubscribed", type=click.FloatRange(1), default=4.0, help="NICs of a leaf over its uplinks.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
def main(
    seeds: tuple[int, ...], gangs: int, near: float, held: float, oversubscribed: float, json_to: str | None
) -> None:
    """Plans gangs on 256 nodes below 16 leaves, and counts what their rings send over uplinks in three rank orders.

    Each gang reduces over rings through its ranks, one for each GPU of a member, each with a NIC of its own. An edge of
    a ring between two leaves crosses both their uplinks, where all edges share alike, and a ring is as fast as its
    slowest edge, at most one NIC. Nodes are named without
    regard to leaves, as where machines came one after another.
    """
    records = [record for seed in seeds for record in records_of(seed, gangs, near, held, oversubscribed)]
    if json_to:
        write_lines(json_to, records)
    Console(stderr=bool(json_to)).print(table_of(records))


def records_of(seed: int, gangs: int, near: float, held: float, oversubscribed: float) -> Iterator[Record]:
    """One record an order."""
    rng = np.random.default_rng(seed)
    fleet = fleet_of(rng, gangs, near, held)
    asked = PlanRequest(Decisions(), 600.0, float)
    packed = planned(fleet.snapshot, asked)
    ordered = edits.order_ranks(fleet.snapshot, packed, asked.decisions)
    shuffled = {gang: list(rng.permutation(nodes)) for gang, nodes in rings_of(packed).items()}
    for name, rings in zip(ORDERS, (shuffled, rings_of(packed), rings_of(ordered)), strict=True):
        crossing = {gang: _uplinks(fleet, ring) for gang, ring in rings.items()}
        load = Counter[str]()
        for gang, own in crossing.items():
            load.update({leaf: edges * fleet.gpus[gang] for leaf, edges in own.items()})
        capacity = NODES_PER_LEAF * GPUS / oversubscribed
        speeds = [min([1.0, *(capacity / load[leaf] for leaf in own)]) for own in crossing.values()]
        yield {
            "seed": seed,
            "order": name,
            "gangs": len(rings),
            "uplinks_per_gang": round(float(np.mean([sum(own.values()) for own in crossing.values()])), 2),
            "uplinks_at_least": round(float(np.mean([_least(fleet, ring) for ring in rings.values()])), 2),
            "busiest_uplink": max(load.values(), default=0),
            "ring_speed": round(float(np.mean(speeds)), 3),
            "slowest_ring": round(min(speeds), 3),
        }


def fleet_of(rng: np.random.Generator, gangs: int, near: float, held: float) -> Fleet:
    """Nodes below leaves below spines, some of which hold a pod of one to eight GPUs, and gangs that wait."""
    count = LEAVES * NODES_PER_LEAF
    leaves = rng.permutation(np.repeat(np.arange(LEAVES), NODES_PER_LEAF))
    names = [f"node-{n}" for n in range(count)]
    shapes = tuple(
        PodShape(cpu_milli=1000, memory_bytes=GIB, gpus=gpus, gpu_milli=WHOLE_GPU_MILLI) for gpus in range(1, GPUS + 1)
    )
    others = np.flatnonzero(rng.random(count) < held).tolist()
    # Name, GPUs, node and gang of each pod.
    rows = [(f"d/other-{node}", int(rng.integers(1, GPUS + 1)), node, -1) for node in others]
    made, widths = [], {}
    for number in range(gangs):
        size, gpus = int(rng.choice(SIZES)), int(rng.choice(WIDTHS))
        prefers = LEAF if rng.random() < near else None
        widths[f"d/gang-{number}"] = gpus
        made.append(Gang(f"d/gang-{number}", size, prefer_within=prefers))
        rows += [(f"d/gang-{number}-{rank}", gpus, PENDING, number) for rank in range(size)]
    nodes = NodeTable(
        names=Names(names),
        cpu_milli=np.full(count, 192_000),
        memory_bytes=np.full(count, 2048 * GIB),
        gpus=np.full(count, GPUS),
        gpu_type=np.zeros(count, dtype=np.int64),
        schedulable=np.ones(count, dtype=np.bool_),
        labels=tuple({LEAF: f"leaf-{n}", SPINE: f"spine-{n // LEAVES_PER_SPINE}"} for n in leaves.tolist()),
        taints=((),) * count,
    )
    pods = PodTable(
        names=Names(name for name, *_ in rows),
        shape=np.array([gpus - 1 for _, gpus, _, _ in rows]),
        shapes=shapes,
        node=np.array([node for _, _, node, _ in rows]),
        devices=np.array([2**gpus - 1 if node != PENDING else 0 for _, gpus, node, _ in rows]),
        priority=np.zeros(len(rows), dtype=np.int64),
        gang=np.array([gang for *_, gang in rows]),
        owner=("",) * len(rows),
        movable=np.zeros(len(rows), dtype=np.bool_),
    )
    types = (GpuType("h100", 80 * GIB, 1.0),)
    snapshot = Snapshot(at_s=0.0, gpu_types=types, nodes=nodes, pods=pods, gangs=tuple(made))
    return Fleet(snapshot, {name: f"leaf-{leaf}" for name, leaf in zip(names, leaves.tolist(), strict=True)}, widths)


def rings_of(plan: Plan) -> dict[str, Order]:
    """Rings of the gangs that a plan starts: the nodes of their ranks in order."""
    node_of = {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}
    rings: dict[str, Order] = {}
    for pod in sorted(node_of, key=natural):
        rings.setdefault(pod.rpartition("-")[0], []).append(node_of[pod])
    return rings


def _uplinks(fleet: Fleet, ring: Order) -> Counter[str]:
    """Edges of one ring over the uplink of each leaf, out of it."""
    leaves = [fleet.leaf[node] for node in ring]
    return Counter(one for one, other in zip(leaves, (*leaves[1:], leaves[0]), strict=True) if one != other)


def _least(fleet: Fleet, ring: Order) -> int:
    """Fewest uplinks that a ring through these nodes crosses."""
    leaves = {fleet.leaf[node] for node in ring}
    return len(leaves) if len(leaves) > 1 else 0


def table_of(records: list[Record]) -> Table:
    """Means over the seeds, with the range."""
    table = Table(title="traffic of gangs, simulated")
    for column in ("order", "uplinks a ring crosses", "at least", "busiest uplink", "ring's speed", "slowest ring"):
        table.add_column(column)
    for order in ORDERS:
        own = [record for record in records if record["order"] == order]
        for_keys = ([float(str(record[key])) for record in own] for key in KEYS)
        table.add_row(order, *map(_range, for_keys))
    return table


def _range(values: list[float]) -> str:
    return f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
