"""Linear model of seats: instances go to stocks that they may use, and every stock holds what is put there.

Sets
    i ∈ groups of instances with one footprint and the same stocks, m ∈ stocks,
    p ∈ patterns of the nodes of m, in kinds of equal patterns
Data
    gpus_i    devices of an instance;  stock_m  devices;  slots_mw  instances w devices wide that m's nodes hold
    hold_ip   instances of footprint i in pattern p;  nodes_k  nodes of a kind
Variables
    x_im ∈ ℕ  instances of group i in stock m;  z_kp ∈ ℕ  nodes of kind k that are filled by pattern p
    short_m   missing devices, in the variant that finds a shortage
Constraints
    Σ_m x_im = instances of i
    Σ gpus_i·x_im ≤ stock_m (+ short_m),   Σ w·⌊gpus_i/w⌋·x_im ≤ w·slots_mw (+ short_m)
    or, where CPU or memory can bind,
    Σ x_im ≤ Σ hold_ip·z_kp (+ extra_i),   Σ_p z_kp ≤ nodes_k,   Σ gpus_i·extra_i ≤ short_m
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulp

from placement.seating.footprint import Footprint
from placement.seating.stock import Stock, counted_as

Count = Any
"""Number of instances: a variable, an expression or a constant."""


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """Instances that are interchangeable where seats are counted."""

    stocks: tuple[str, ...]
    """Stocks that they may use, the least wanted by others first."""
    footprint: Footprint


Seats = Mapping[tuple[Group, str], Count]
"""Instances by group and stock."""


def add_seats(
    problem: pulp.LpProblem,
    stock: Mapping[str, Stock],
    wanted: Mapping[Group, Count],
    short: Mapping[str, pulp.LpVariable],
) -> Seats:
    """Adds the constraints that these instances have seats. Groups with a stock of no limit need none."""
    limited = {group: count for group, count in wanted.items() if all(name in stock for name in group.stocks)}
    seats: dict[tuple[Group, str], Count] = {}
    for number, (group, count) in enumerate(limited.items()):
        if len(group.stocks) == 1:
            seats[group, group.stocks[0]] = count
            continue
        kind = pulp.LpContinuous if _is_transport(group, limited, stock) else pulp.LpInteger
        own = {name: problem.add_variable(f"x_{number}_{m}", 0, cat=kind) for m, name in enumerate(group.stocks)}
        problem += pulp.lpSum(own.values()) == count
        seats |= {(group, name): variable for name, variable in own.items()}
    for number, name in enumerate(stock):
        users = [(group.footprint, count) for (group, place), count in seats.items() if place == name]
        if users:
            _hold(problem, stock[name], users, short.get(name, 0), number)
    return seats


def _is_transport(group: Group, groups: Mapping[Group, Count], stock: Mapping[str, Stock]) -> bool:
    """Whether all who share these stocks have one footprint: a flow with whole numbers of its own accord."""
    sharing = {each.footprint for each in groups if not set(each.stocks).isdisjoint(group.stocks)}
    return len(sharing) == 1 and group.footprint.gpus == 1 and not any(stock[name].rooms for name in group.stocks)


def _hold(
    problem: pulp.LpProblem, stock: Stock, users: Sequence[tuple[Footprint, Count]], short: Count, number: int
) -> None:
    if stock.rooms:
        _hold_patterns(problem, stock, users, short, number)
        return
    problem += pulp.lpSum(f.gpus * count for f, count in users) <= stock.gpus + short
    for width, slots in stock.slots.items():
        wide = [width * (f.gpus // width) * count for f, count in users if f.gpus >= width]
        if wide:
            problem += pulp.lpSum(wide) <= width * slots + short


def _hold_patterns(
    problem: pulp.LpProblem, stock: Stock, users: Sequence[tuple[Footprint, Count]], short: Count, number: int
) -> None:
    held: list[list[Count]] = [[] for _ in stock.footprints]
    for k, (patterns, nodes) in enumerate(stock.kinds):
        filled = [problem.add_variable(f"z_{number}_{k}_{p}", 0, nodes, pulp.LpInteger) for p in range(len(patterns))]
        problem += pulp.lpSum(filled) <= nodes
        for pattern, variable in zip(patterns, filled, strict=True):
            for i, count in enumerate(pattern):
                held[i] += [count * variable] if count else []
    extra: list[Count] = []
    for i, footprint in enumerate(stock.footprints):
        counts = [count for f, count in users if counted_as(stock, f) == footprint]
        if not counts:
            continue
        more = 0 if isinstance(short, int) else problem.add_variable(f"extra_{number}_{i}", 0)
        extra += [] if isinstance(short, int) else [footprint.gpus * more]
        problem += pulp.lpSum(counts) <= pulp.lpSum(held[i]) + more
    if extra:
        problem += pulp.lpSum(extra) <= short
