"""Several rows that share services: what each row draws when its servers were given out one way or another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray, Names, column
from cluster.hardware import GpuType
from cluster.nodes import NodeTable
from cluster.pods import PodTable
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.packer import Packer
from placement.policy import Policy
from placement.power_room import PowerRoom
from simulator.power.demand import RateCurve
from simulator.power.machine import Machine
from simulator.power.policy import PERIOD_S
from simulator.power.requests import Load, Requests, in_order, requests_of
from simulator.power.row import Row

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """Instances of a model that serve one course of requests; an instance is a whole server."""

    name: str
    curve: RateCurve
    instances: int


def shifted(curve: RateCurve, hours: float) -> RateCurve:
    """The same course so many hours later, its end put first: users in another time zone."""
    steps = round(hours * HOUR_S / curve.bucket_s)
    return RateCurve(f"{curve.source}, {hours:g} h later", curve.bucket_s, np.roll(curve.share, steps))


def expected_course_w(machine: Machine, curve: RateCurve, load: Load, days: int) -> FloatArray:
    """Watts above rest that an instance draws in the mean of each hour of the day, over the first days; shape (24,).

    It is what metering would teach: busy share × what tokens draw. Single days are not kept apart: their bursts do
    not come back at the same hour.
    """
    per_hour = round(HOUR_S / curve.bucket_s)
    hourly = curve.share[: days * 24 * per_hour].reshape(days, 24, per_hour).mean(axis=(0, 2))
    return np.asarray(hourly * load.peak_busy_share * machine.token_swing_w(load.batch), dtype=np.float64)


def place(
    services: Sequence[Service],
    rows: int,
    servers_per_row: int,
    policy: Policy,
    *,
    room: PowerRoom | None,
    courses_w: Sequence[FloatArray],
    order: IntArray,
) -> IntArray:
    """Instances of each service in each row, shape (rows, services), placed one by one by the packing engine.

    room: None is blind to power; else each instance goes to the domain that it names, if any node there fits.
    order: the services' numbers in the order in which their instances ask for a place.
    """
    count = rows * servers_per_row
    shape = PodShape(cpu_milli=1000, memory_bytes=0, gpus=8, gpu_milli=1000)
    packer = Packer.of(_fleet(count), policy)
    placed = np.zeros((rows, len(services)), dtype=np.int64)
    for service in order.tolist():
        among = None if room is None else room.preferred(courses_w[service], packer.feasible(shape))
        choice = packer.choose(shape, among)
        if choice is None:
            raise ValueError("more instances than servers")
        packer.place(shape, choice)
        placed[choice.node // servers_per_row, service] += 1
        room = None if room is None else room.after(courses_w[service], choice.node)
    return placed


def peaks_w(
    machine: Machine, services: Sequence[Service], placed: IntArray, load: Load, first_s: float, seed: int
) -> FloatArray:
    """Highest mean draw of 2 s of each row from `first_s` on; shape (rows,)."""
    return np.array([_peak_w(machine, services, own, load, first_s, [seed, n]) for n, own in enumerate(placed)])


def _peak_w(
    machine: Machine, services: Sequence[Service], own: IntArray, load: Load, first_s: float, seed: Sequence[int]
) -> float:
    chance = np.random.default_rng(seed)
    parts: list[Requests] = []
    shares = np.array([kind.share for kind in load.mix])
    present = [(number, int(count)) for number, count in enumerate(own) if count]
    for pool, (number, count) in enumerate(present):
        # Requests of a service go to its instances evenly, so a row's part of them is as random as the whole.
        parts.append(requests_of(machine, services[number].curve, load, count, pool, shares, chance))
    row = Row(machine, in_order(parts), tuple(count for _, count in present), batch=load.batch)
    highest_w = 0.0
    for period in range(1, round(services[0].curve.for_s / PERIOD_S) + 1):
        row.advance(period * PERIOD_S)
        draw_w = float(row.close_window().sum())
        if period * PERIOD_S > first_s:
            highest_w = max(highest_w, draw_w)
    return highest_w


def _fleet(count: int) -> Snapshot:
    """Empty servers of eight GPUs."""
    nothing = column([], np.int64)
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
    return Snapshot(0.0, (GpuType("A100", 80 * 2**30, 0.0),), nodes, pods)
