"""Uplinks that large gangs share while gangs come and go. Simulated.

python -m benchmarks.traffic_churn
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import write_lines
from benchmarks.traffic import GPUS, LEAF, LEAVES, NODES_PER_LEAF, Record, fleet_of
from cluster.arrays import FloatArray, IntArray, Names
from cluster.snapshot import PENDING, PodTable, Snapshot
from cluster.workloads import Gang
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit

SIZES = (1, 2, 4, 8, 12, 20, 24, 40)
"""Members of a gang. A leaf has 16 nodes, so three sizes in eight cannot but span leaves."""
OVERSUBSCRIBED = (4, 8, 16)
"""NICs of a leaf over its uplinks."""
WARM_UP_SHARE = 0.25
"""Fraction of the arrivals before the measurement."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Gangs in the order in which they come; times in mean stays. Each of shape (gangs,)."""

    at: FloatArray
    stay: FloatArray
    size: IntArray
    gpus: IntArray
    """GPUs of a member."""


@dataclass(slots=True)
class Tally:
    """Sums over time, and over the gangs that started, after the warm-up."""

    time: float = 0.0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    leaves: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


@click.command(context_settings={"show_default": True})
@click.option("--seeds", callback=arguments.seeds, default="201-232", help="Seeds of the fleets, arrivals and stays.")
@click.option("--gangs", type=click.IntRange(20), default=500, help="Gangs that come.")
@click.option("--loads", callback=arguments.fractions, default="0.7,0.8,0.9", help="Offered loads; 1: all GPUs.")
@click.option("--gpus", callback=arguments.seeds, default="8", help="GPUs of a member, such as 8 or 1,2,4,8.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
def main(
    seeds: tuple[int, ...], gangs: int, loads: tuple[float, ...], gpus: tuple[int, ...], json_to: str | None
) -> None:
    """Lets gangs come to 256 nodes below 16 leaves, run and end, and counts what their rings send over uplinks.

    All prefer to share a leaf; those that fit nowhere wait. Ranks are in the order of the network
    (`benchmarks.traffic`), so a ring crosses the uplink of each of its leaves once, and a gang has a ring for each GPU
    of a member. Figures are means over time, or over the gangs that started, after a quarter of the arrivals. Rings are
    those of gangs that span leaves, beside leaves with 4, 8 or 16 NICs an uplink.
    """
    records = [record_of(seed, gangs, load, gpus) for load in loads for seed in seeds]
    if json_to:
        write_lines(json_to, records)
    Console(stderr=bool(json_to)).print(table_of(records))


def record_of(seed: int, gangs: int, load: float, gpus: Sequence[int]) -> Record:
    """Figures of one run."""
    rng = np.random.default_rng(seed)
    nodes = fleet_of(rng, gangs=0, near=0.0, held=0.0).snapshot
    return {"seed": seed, "load": load, **figures_of(played(nodes, arrivals_of(rng, gangs, load, gpus)))}


def arrivals_of(rng: np.random.Generator, gangs: int, load: float, gpus: Sequence[int]) -> Arrivals:
    """Poisson arrivals at an offered load, with exponential stays."""
    size, width = rng.choice(SIZES, gangs), rng.choice(gpus, gangs)
    stay = rng.exponential(1.0, gangs)
    gap = float(np.mean(size * width)) / (load * LEAVES * NODES_PER_LEAF * GPUS)
    return Arrivals(np.cumsum(rng.exponential(gap, gangs)), stay, size, width)


def played(fleet: Snapshot, coming: Arrivals) -> Tally:
    """Plans after each arrival and each end, until the last of them before the last arrival."""
    leaf, tally = fleet.nodes.domain(LEAF), Tally()
    running: dict[int, tuple[IntArray, IntArray]] = {}  # nodes and devices of the members
    waiting: list[int] = []
    events = [(at, "comes", gang) for gang, at in enumerate(coming.at.tolist())]
    now = measured_from = float(coming.at[int(WARM_UP_SHARE * len(coming.at))])
    while events[0][0] < coming.at[-1]:
        at, what, gang = heapq.heappop(events)
        if at > now:
            _count(tally, coming, {each: leaf[nodes] for each, (nodes, _) in running.items()}, at - now)
            now = at
        if what == "comes":
            waiting.append(gang)
        else:
            del running[gang]
        if not waiting:
            continue
        for each, seat in _started(fleet, coming, running, waiting).items():
            running[each] = seat
            waiting.remove(each)
            heapq.heappush(events, (at + float(coming.stay[each]), "ends", each))
            if at > measured_from:
                tally.leaves.append(len(np.unique(leaf[seat[0]])))
                tally.waits.append(at - float(coming.at[each]))
    return tally


def _started(
    fleet: Snapshot,
    coming: Arrivals,
    running: dict[int, tuple[IntArray, IntArray]],
    waiting: Sequence[int],
) -> dict[int, tuple[IntArray, IntArray]]:
    """The waiting gangs that a plan starts, with nodes and devices of their members."""
    gangs = [*running, *waiting]
    sizes = coming.size[gangs]
    idle = [(np.full(coming.size[gang], PENDING), np.zeros(coming.size[gang], dtype=np.int64)) for gang in waiting]
    nodes, devices = zip(*running.values(), *idle, strict=True)
    pods = PodTable(
        names=Names(f"gang-{gang}-{rank}" for gang in gangs for rank in range(coming.size[gang])),
        shape=np.repeat(coming.gpus[gangs] - 1, sizes),
        shapes=fleet.pods.shapes,
        node=np.concatenate(nodes),
        devices=np.concatenate(devices),
        priority=np.zeros(sizes.sum(), dtype=np.int64),
        gang=np.repeat(np.arange(len(gangs)), sizes),
        owner=("",) * int(sizes.sum()),
        movable=np.zeros(sizes.sum(), dtype=np.bool_),
    )
    wanted = tuple(Gang(f"gang-{gang}", int(coming.size[gang]), prefer_within=LEAF) for gang in gangs)
    seen = Snapshot(0.0, fleet.gpu_types, fleet.nodes, pods, wanted)
    after = seen.after(pack(seen, Packer.of(seen, BestFit())).actions).pods
    members = {gang: pods.gang == number for number, gang in enumerate(gangs) if gang not in running}
    return {gang: (after.node[own], after.devices[own]) for gang, own in members.items() if after.node[own][0] >= 0}


def _count(tally: Tally, coming: Arrivals, leaves: dict[int, IntArray], for_time: float) -> None:
    """Adds what the running gangs did in this time. leaves: of each member."""
    parts = {gang: set(own.tolist()) for gang, own in leaves.items()}
    spanning = {gang: own for gang, own in parts.items() if len(own) > 1}
    gangs_on = Counter(leaf for own in spanning.values() for leaf in own)
    edges = Counter[int]()
    for gang, own in spanning.items():
        edges.update(dict.fromkeys(own, int(coming.gpus[gang])))
    sums: dict[str, float] = {
        "spanning": len(spanning),
        "uplinks": gangs_on.total(),
        "shared": sum(gangs for gangs in gangs_on.values() if gangs > 1),
        "busiest": max(edges.values(), default=0),
    }
    for ratio in OVERSUBSCRIBED:
        capacity = NODES_PER_LEAF * GPUS / ratio
        speeds = [min(1.0, *(capacity / edges[leaf] for leaf in own)) for own in spanning.values()]
        sums |= {f"speed_{ratio}": sum(speeds), f"slowest_{ratio}": min(speeds, default=1.0)}
    tally.time += for_time
    for key, value in sums.items():
        tally.sums[key] += value * for_time


def figures_of(tally: Tally) -> Record:
    """Means over time and over the gangs that started."""
    sums, time = tally.sums, tally.time
    return {
        "started": len(tally.leaves),
        "wait": float(np.mean(tally.waits)),
        "leaves_per_gang": float(np.mean(tally.leaves)),
        "spanning_gangs": sums["spanning"] / time,
        "shared_uplinks_share": sums["shared"] / max(sums["uplinks"], 1e-9),
        "busiest_uplink": sums["busiest"] / time,
        **{f"ring_speed_{ratio}": sums[f"speed_{ratio}"] / max(sums["spanning"], 1e-9) for ratio in OVERSUBSCRIBED},
        **{f"slowest_ring_{ratio}": sums[f"slowest_{ratio}"] / time for ratio in OVERSUBSCRIBED},
    }


def table_of(records: Sequence[Record]) -> Table:
    """Means over the seeds by load, with the range."""
    loads = list(dict.fromkeys(record["load"] for record in records))
    table = Table("figure", *(f"load {load}" for load in loads), title="uplinks of gangs that come and go, simulated")
    for key in [key for key in records[0] if key not in ("seed", "load")]:
        of_load = ([float(str(each[key])) for each in records if each["load"] == load] for load in loads)
        table.add_row(key, *(f"{np.mean(own):.3f} ({min(own):.3f} to {max(own):.3f})" for own in of_load))
    return table


if __name__ == "__main__":
    main()
