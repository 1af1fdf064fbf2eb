"""Several rows that share services: the draw of each row, depending on how servers were assigned to services."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, Names, column
from cluster.nodes import NodeTable
from cluster.power import (
    PHASE_IDLE,
    UNLIMITED_W,
    DomainTable,
    FeedTable,
    PowerClass,
    PowerDeviceTable,
    PowerLeases,
    PowerReadings,
    PowerTable,
)
from cluster.snapshot import PodTable, Snapshot
from cluster.workloads import GpuType, PodShape
from placement.engine.packer import Packer
from placement.engine.policy import Policy
from simulator.power.machine import Machine
from simulator.power.policies import PERIOD_S
from simulator.power.requests import RateCurve, Requests, RowLoad, in_order, requests_of
from simulator.power.row import Row

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class RowService:
    """Instances of a model that serve one course of requests; an instance is a whole server."""

    name: str
    curve: RateCurve
    instances: int


def shifted(curve: RateCurve, hours: float) -> RateCurve:
    """The same course shifted later by these hours, with its end moved to the front: users in another time zone."""
    steps = round(hours * HOUR_S / curve.bucket_s)
    return RateCurve(f"{curve.source}, {hours:g} h later", curve.bucket_s, np.roll(curve.share, steps))


def expected_course(machine: Machine, curve: RateCurve, load: RowLoad, days: int) -> FloatArray:
    """Mean draw of an instance in each hour of the day, over the first days; shape (24,).

    As a fraction of the range from idle to the highest draw of a server, which is the form of profiles in snapshots. It
    is what metering would learn: busy fraction × the draw of token generation. Single days are not distinguished, since
    their bursts do not recur at the same hour.
    """
    per_hour = round(HOUR_S / curve.bucket_s)
    hourly = curve.share[: days * 24 * per_hour].reshape(days, 24, per_hour).mean(axis=(0, 2))
    swing = machine.token_swing_w(load.batch) / (machine.highest_w - machine.idle_w)
    return np.asarray(hourly * load.peak_busy_share * swing, dtype=np.float64)


def place(
    services: Sequence[RowService],
    rows: int,
    servers_per_row: int,
    policy: Policy,
    *,
    fleet: Snapshot,
    spread: bool = False,
    settled_share: float = 0.0,
) -> IntArray:
    """Instances of each service in each row, shape (rows, services), placed one by one by the packing engine.

    Services are placed in order, all instances of one after the other. fleet: from `fleet_of`; if it has daily
    profiles, the engine uses them. spread: each instance goes to a row with fewest of its service, as an operator would
    spread it over failure domains; of those the emptiest. settled_share: this fraction of each service is already
    placed and takes this fraction of each row, one row filled after the other; only the rest is placed.
    """
    shape = PodShape(cpu_milli=1000, memory_bytes=0, gpus=8, gpu_milli=1000)
    packer = Packer(fleet, policy)
    row_of = np.arange(rows * servers_per_row) // servers_per_row
    placed = np.zeros((rows, len(services)), dtype=np.int64)
    stands = [round(service.instances * settled_share) for service in services]
    for step in ("stands", "asks"):
        for number, service in enumerate(services):
            for _ in range(stands[number] if step == "stands" else service.instances - stands[number]):
                among = None
                if step == "stands":
                    # The first row with fewer instances than `most`.
                    used = placed.sum(axis=1)
                    among = np.asarray(
                        np.arange(len(used)) == np.flatnonzero(used < (sum(stands) / rows))[0], dtype=np.bool_
                    )[row_of]
                elif spread:
                    among = _evenest(placed, number, servers_per_row)[row_of]
                choice = packer.choose(shape, among, service.name)
                if choice is None:
                    raise ValueError("more instances than servers, or than power for their floors")
                packer.place(shape, choice, service.name)
                placed[row_of[choice.node], number] += 1
    return placed


def _evenest(placed: IntArray, service: int, servers_per_row: int) -> BoolArray:
    """The rows with room that have fewest instances of a service; of those the ones with fewest servers in use."""
    used = placed.sum(axis=1)
    full = used >= servers_per_row
    order = np.where(full, np.iinfo(np.int64).max, placed[:, service] * (servers_per_row + 1) + used)
    return np.asarray(order == order.min(), dtype=np.bool_)


def draws_w(
    machine: Machine,
    services: Sequence[RowService],
    placed: IntArray,
    load: RowLoad,
    first_day: int,
    days: int,
    seed: int,
) -> FloatArray:
    """Mean draw of each row in every 2 s of these days; shape (rows, windows)."""
    part = [RowService(s.name, s.curve.days(first_day, days), s.instances) for s in services]
    return np.array([_draw_w(machine, part, own, load, [seed, n]) for n, own in enumerate(placed)])


def _draw_w(
    machine: Machine, services: Sequence[RowService], own: IntArray, load: RowLoad, seed: Sequence[int]
) -> FloatArray:
    chance = np.random.default_rng(seed)
    parts: list[Requests] = []
    shares = np.array([kind.share for kind in load.mix])
    present = [(number, int(count)) for number, count in enumerate(own) if count]
    for pool, (number, count) in enumerate(present):
        # Requests of a service go to its instances evenly, so a row's part of them is as random as the whole.
        parts.append(requests_of(machine, services[number].curve, load, count, pool, shares, chance))
    row = Row(machine, in_order(parts), tuple(count for _, count in present), batch=load.batch)
    made = np.empty(round(services[0].curve.for_s / PERIOD_S))
    for period in range(len(made)):
        row.advance((period + 1) * PERIOD_S)
        made[period] = row.close_window().sum()
    return made


def fleet_of(
    machine: Machine, rows: int, servers_per_row: int, budget_w: float, courses: Mapping[str, FloatArray]
) -> Snapshot:
    """Idle, empty servers of eight GPUs, in rows with this budget each.

    courses: by service, from `expected_course`; without any, placement has no daily profiles.
    """
    count, nothing = rows * servers_per_row, column([], np.int64)
    nodes = NodeTable(
        names=Names(f"server-{n:04d}" for n in range(count)),
        cpu_milli=column([96_000] * count, np.int64),
        memory_bytes=column([2**40] * count, np.int64),
        gpus=column([8] * count, np.int64),
        gpu_type=column([0] * count, np.int64),
        schedulable=column([True] * count, np.bool_),
        labels=tuple({} for _ in range(count)),
        taints=((),) * count,
    )
    pods = PodTable(Names(), nothing, (), nothing, nothing, nothing, nothing, (), column([], np.bool_))
    power = power_of(machine, tuple(nodes.names), rows, budget_w, courses)
    return Snapshot(0.0, (GpuType("A100", 80 * 2**30, 0.0),), nodes, pods, power=power)


def power_of(
    machine: Machine, servers: Sequence[str], rows: int, budget_w: float, courses: Mapping[str, FloatArray]
) -> PowerTable:
    """Power table of rows of idle servers; the draw of a whole server is divided among its eight GPUs."""
    row_names, per_row, count = [f"row-{n}" for n in range(rows)], len(servers) // rows, 8 * len(servers)

    def each(whole_w: float) -> FloatArray:
        return column([whole_w / 8] * count, np.float64)

    def zeros(length: int) -> FloatArray:
        return column([0.0] * length, np.float64)

    domains = rows + len(servers)
    return PowerTable(
        domains=DomainTable(
            names=Names((*row_names, *servers)),
            kind=("row",) * rows + ("node",) * len(servers),
            budget_w=column([budget_w] * rows + [UNLIMITED_W] * len(servers), np.float64),
            other_w=zeros(domains),
            curve=column([-1] * domains, np.int64),
        ),
        feeds=FeedTable(
            child=column(range(rows, domains), np.int64),
            parent=column([n // per_row for n in range(len(servers))], np.int64),
            share=column([1.0] * len(servers), np.float64),
        ),
        classes=(PowerClass("all", 0),),
        gpu_types=("A100",),
        devices=PowerDeviceTable(
            names=Names(f"{server}-gpu{n}" for server in servers for n in range(8)),
            domain=column(np.arange(rows, domains).repeat(8), np.int64),
            gpu_type=column([0] * count, np.int64),
            power_class=column([0] * count, np.int64),
            min_w=each(machine.floor_w),
            max_w=each(machine.highest_w),
            default_w=each(machine.highest_w),
            previous_w=each(machine.highest_w),
            floor_w=each(machine.floor_w),
            idle_w=each(machine.idle_w),
            overshoot_share=zeros(count),
            overhead_share=zeros(count),
            managed=column([True] * count, np.bool_),
        ),
        readings=PowerReadings(
            at_s=zeros(count),
            draw_w=each(machine.idle_w),
            cap_w=each(machine.highest_w),
            sequence=column([0] * count, np.int64),
            phase=column([PHASE_IDLE] * count, np.int64),
            meter_at_s=zeros(domains),
            meter_w=zeros(domains),
        ),
        leases=PowerLeases(
            cap_w=each(machine.highest_w),
            ceiling_w=each(machine.highest_w),
            sequence=column([0] * count, np.int64),
            expires_at_s=zeros(count),
        ),
        headroom_w=dict.fromkeys(row_names, budget_w - per_row * machine.idle_w),
        courses=courses,
    )


REGION_HOURS = (0.0, 8.0, 16.0)
"""Time offsets of users in the Americas, in Asia, and in Europe: a third of a day apart."""
REGION_SHARES = (0.5, 0.3, 0.2)
"""Fractions of services per region. Chosen: uneven, since with equal regions the load of the whole fleet would be
flat."""
WEEK_H = 168.0
SIZE_EXPONENT = 0.7
"""Exponent of the sizes: the n-th largest service has 1 / n ** this of the servers of the largest. Chosen: the largest
of 24 services has a tenth of the servers."""


def zones(curve: RateCurve, count: int, servers: int) -> tuple[RowService, ...]:
    """Equal services, each peaking later than the previous one by the same time, around the day."""
    each = servers // count
    return tuple(RowService(f"s{n}", shifted(curve, 24 * n / count), each) for n in range(count))


def regions(curves: Sequence[RateCurve], count: int, servers: int, seed: int) -> tuple[RowService, ...]:
    """Services of unequal size, each with users in one region, in random order of arrival at the fleet.

    Each follows one of the curves, of the same or the other week: hours and weekdays recur, while single surges do not
    coincide.
    """
    chance = np.random.default_rng(seed)
    sizes = _sizes(count, servers)
    made = []
    for n in chance.permutation(count).tolist():
        region = int(chance.choice(len(REGION_HOURS), p=REGION_SHARES))
        curve = curves[int(chance.integers(len(curves)))]
        weeks = int(chance.integers(max(1, round(curve.for_s / 3600 / WEEK_H))))
        made.append(RowService(f"s{n:02d}", shifted(curve, REGION_HOURS[region] + weeks * WEEK_H), sizes[n]))
    return tuple(made)


def _sizes(count: int, servers: int) -> list[int]:
    """Number of servers of each service, the largest first; at least one, together all there are."""
    weight = 1.0 / np.arange(1, count + 1) ** SIZE_EXPONENT
    exact = weight / weight.sum() * (servers - count)
    sizes = np.floor(exact).astype(int)
    for n in np.argsort(sizes - exact, kind="stable")[: servers - count - int(sizes.sum())]:
        sizes[n] += 1
    return [int(size) + 1 for size in sizes]
