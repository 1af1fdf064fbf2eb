"""Which instances the stock holds together, and what is wrong with a mix, in words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pulp

from placement.mix.problem import Mix, MixQuestion, Need, pool_load, room_needed, serves_any
from placement.mix.pulp_solver import solve
from placement.stock import InstanceGroup, Stock, add_seats, within_quotas

Seating = Mapping[tuple[InstanceGroup, str], int]
"""Instances by group and stock."""
MOST_NODES = 200
"""Nodes of the tree search for seats. Chosen: a model of a few dozen variables mostly takes one."""


def groups_of(needs: Iterable[Need], mixes: Iterable[Mix]) -> dict[InstanceGroup, int]:
    """Instances of these mixes by the group of their offer."""
    found: dict[InstanceGroup, int] = {}
    for need, mix in zip(needs, mixes, strict=True):
        for offer, count in zip(need.offers, mix.instances.tolist(), strict=True):
            if count:
                found[offer.group] = found.get(offer.group, 0) + count
    return found


def seats_of(question: MixQuestion, mixes: tuple[Mix, ...]) -> Seating | None:
    """Seats of all instances of these mixes; None where there are not enough."""
    return seating(question.stock, groups_of(question.needs, mixes))


def seating(stock: Mapping[str, Stock], wanted: Mapping[InstanceGroup, int]) -> Seating | None:
    """Seats for all these instances; None where there are not enough. Tried without a solver first."""
    if not within_quotas(stock, wanted):
        return None
    limited = _limited(stock, wanted)
    found = _simple(stock, limited)
    if found is not None or all(len(g.stocks) == 1 and not stock[g.stocks[0]].rooms for g in limited):
        return found
    most = dict(_most_seats(_Stocks({n: stock[n] for g in limited for n in g.stocks}), tuple(limited.items())))
    return most if sum(most.values()) == sum(limited.values()) else None


def seats_at_once(stock: Mapping[str, Stock], wanted: Mapping[InstanceGroup, int]) -> Seating | None:
    """Seats for all these instances, found without a solver; None where they are not found so."""
    return _simple(stock, _limited(stock, wanted)) if within_quotas(stock, wanted) else None


def _limited(stock: Mapping[str, Stock], wanted: Mapping[InstanceGroup, int]) -> dict[InstanceGroup, int]:
    """Those of the wanted instances that no unlimited stock has seats for."""
    return {group: count for group, count in wanted.items() if count and all(name in stock for name in group.stocks)}


def _simple(stock: Mapping[str, Stock], wanted: Mapping[InstanceGroup, int]) -> Seating | None:
    """Seats given out one group after the other: few choices first, then large before small."""
    left, found = dict(stock), dict[tuple[InstanceGroup, str], int]()
    for group in sorted(wanted, key=lambda group: (len(group.stocks), -group.footprint.gpus, group)):
        remaining = wanted[group]
        for name in group.stocks:
            count = min(remaining, left[name].holds(group.footprint))
            if count:
                left[name] = left[name].minus(group.footprint, count)
                found[group, name] = count
                remaining -= count
        if remaining:
            return None
    return found


class _Stocks:
    """Stocks as the key of a cache: equal where they have the same content."""

    def __init__(self, stock: Mapping[str, Stock]) -> None:
        self.stock = stock
        self.key = tuple(
            (name, s.gpus, tuple(s.slots.items()), s.rooms, s.footprints) for name, s in sorted(stock.items())
        )

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stocks) and self.key == other.key


@lru_cache(maxsize=1024)
def _most_seats(
    stocks: _Stocks, wanted: tuple[tuple[InstanceGroup, int], ...]
) -> tuple[tuple[tuple[InstanceGroup, str], int], ...]:
    """Seats for as many of these instances as there can be."""
    problem = pulp.LpProblem("seats", pulp.LpMaximize)
    counts = {
        group: problem.add_variable(f"c_{n}", 0, count, pulp.LpInteger) for n, (group, count) in enumerate(wanted)
    }
    problem += -pulp.lpSum(counts.values())
    problem.sense = pulp.LpMinimize
    seats = add_seats(problem, stocks.stock, counts, {})
    if not solve(problem, most_nodes=MOST_NODES).has_answer:
        return ()
    return tuple((where, value) for where, count in seats.items() if (value := round(count.value() or 0)))


@dataclass(frozen=True, slots=True)
class SharedStocks:
    """Stocks whose instances could make room for each other, because some may use several of them."""

    name: str
    """For people: the GPU type, with the services that may use nothing else of it where there is more."""
    gpus: int
    """Devices of all these stocks."""
    stocks: frozenset[str]


def crowd_at(question: MixQuestion, seats: Mapping[tuple[InstanceGroup, str], float], at: str) -> SharedStocks:
    """The crowd of a stock, given who sits where: one more device for any of them makes room for all of them."""
    stocks, before = {at}, set[str]()
    while stocks != before:
        before = set(stocks)
        stocks.update(*(group.stocks for (group, name), count in seats.items() if count > 1e-6 and name in before))
    offers = [(need.service, offer) for need in question.needs for offer in need.offers]
    kept = {service for service, offer in offers if stocks.issuperset(offer.stocks)}
    types = {question.stock[each].gpu_type or each for each in stocks if each in question.stock}
    others = {name for name, each in question.stock.items() if (each.gpu_type or name) in types and each.gpus > 0}
    label = ", ".join(sorted(types)) or at
    order = dict.fromkeys(need.service for need in question.needs if need.service in kept)
    name = label if stocks >= others or not kept else f"{label} on nodes for {', '.join(order)}"
    return SharedStocks(
        name, sum(question.stock[each].gpus for each in stocks if each in question.stock), frozenset(stocks)
    )


TOLERANCE = 1e-6
"""Tolerance for instances, slices and fractions: solvers work to 1e-7 (HiGHS, feasibility), and errors add up."""


def violations(question: MixQuestion, mixes: tuple[Mix, ...]) -> tuple[str, ...]:
    """Violations of these mixes, in words; empty when they are feasible."""
    wrong: list[str] = []
    for need, mix in zip(question.needs, mixes, strict=True):
        if (mix.instances < 0).any() or (mix.share < 0).any():
            wrong.append(f"{need.service}: a count or a fraction is negative")
        if not np.allclose(mix.share.sum(axis=1), 1.0, rtol=0, atol=TOLERANCE):
            wrong.append(f"{need.service}: the fractions of a bucket do not add up to 1")
        if need.slice_factor is not None:
            slices = mix.share * need.slice_factor
            if not np.allclose(slices, np.round(slices), rtol=0, atol=TOLERANCE * need.slice_factor):
                wrong.append(f"{need.service}: a slice is split")
        for g, (offer, count) in enumerate(zip(need.offers, mix.instances, strict=True)):
            room = room_needed(*pool_load(offer, mix.share[:, g]), need.headroom_share)
            what = f"{need.service}: {count} instances on {offer.instance_type}"
            if not room <= count + TOLERANCE * max(1.0, room):
                wrong.append(f"{what} where {room:.3f} are needed")
            elif not count and serves_any(offer, mix.share[:, g]):
                wrong.append(f"{need.service}: requests are routed to {offer.instance_type}, which has no instance")
    if seats_of(question, mixes) is None:
        groups, full = groups_of(question.needs, mixes), False
        for name, stock in question.stock.items():
            spent = sum(count * units for group, count in groups.items() for own, units in group.quotas if own == name)
            if spent > stock.gpus:
                wrong.append(f"{spent} {stock.gpu_type} are used, but only {stock.gpus} may be")
                full = True
            users = {group: count for group, count in groups.items() if name in group.stocks}
            spent = sum(count * group.footprint.gpus for group, count in users.items())
            if spent > stock.gpus and all(group.stocks == (name,) for group in users):
                wrong.append(f"{spent} {name} are used, but only {stock.gpus} exist")
                full = True
        if not full:
            wrong.append("the stock has no seats for all instances together")
    return tuple(wrong)


def is_feasible(question: MixQuestion, mixes: tuple[Mix, ...]) -> bool:
    return not violations(question, mixes)
