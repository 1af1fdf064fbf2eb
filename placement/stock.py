"""Stock: the nodes that the same instances may use, or an inventory of devices, with what it holds together."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, pairwise
from math import gcd
from typing import Any

import pulp


@dataclass(frozen=True, slots=True, order=True)
class Footprint:
    """Resources of one instance on its node; also what is free on a node."""

    gpus: int
    """Whole devices."""
    cpu_milli: int = 0
    memory_bytes: int = 0

    def times_in(self, room: "Footprint") -> int:
        """Number of such instances that fit together into a room."""
        pairs = (
            (self.gpus, room.gpus),
            (self.cpu_milli, room.cpu_milli),
            (self.memory_bytes, room.memory_bytes),
        )
        return max(0, min(has // asked for asked, has in pairs if asked))

    def minus(self, other: "Footprint", count: int = 1) -> "Footprint":
        return Footprint(
            self.gpus - count * other.gpus,
            self.cpu_milli - count * other.cpu_milli,
            self.memory_bytes - count * other.memory_bytes,
        )


def footprint_of(gpus: int, cpu_milli: int, memory_bytes: int) -> Footprint:
    """Footprint of an instance. One without a device is counted in GiB of memory instead."""
    return Footprint(gpus, cpu_milli, memory_bytes) if gpus else Footprint(-(-memory_bytes // 2**30))


Pattern = tuple[int, ...]
"""Numbers of instances of each footprint that one node holds together."""
_Filling = tuple[Pattern, Footprint]
"""A pattern, and what it leaves free."""


MOST_FILLINGS = 20_000
"""Fillings of one node that are looked at. Chosen: 50 ms."""


@lru_cache(maxsize=65_536)
def patterns_of(room: Footprint, footprints: tuple[Footprint, ...]) -> tuple[Pattern, ...] | None:
    """Maximal patterns of a node: no further instance fits beside them. None where there are too many fillings."""
    found = list(islice(_filled(room, footprints), MOST_FILLINGS + 1))
    return None if len(found) > MOST_FILLINGS else tuple(pattern for pattern, _ in found)


def _filled(room: Footprint, footprints: Sequence[Footprint], before: Sequence[Footprint] = ()) -> Iterator[_Filling]:
    """Every filling of a room to which none of the footprints before and no further one can be added."""
    first, *rest = footprints
    for count in range(first.times_in(room), -1, -1):
        left = room.minus(first, count)
        if rest:
            yield from (((count, *others), last) for others, last in _filled(left, rest, (*before, first)))
        elif not any(each.times_in(left) for each in (*before, first)):
            yield (count,), left


MOST_PATTERNS = 600
"""Patterns of a stock, beyond which footprints of one width are counted with the largest of each resource. Chosen: an
integer variable each."""


@dataclass(frozen=True, slots=True)
class Stock:
    """Available devices of one GPU type, or of those of its nodes that the same instances may use."""

    gpus: int
    slots: Mapping[int, int] = field(default_factory=dict)
    """Instance width in devices → number of instances of that width on single nodes; missing: only `gpus` counts."""
    rooms: tuple[tuple[Footprint, int], ...] = ()
    """Free resources of a node → number of such nodes, where widths alone do not decide what a node holds."""
    footprints: tuple[Footprint, ...] = ()
    """Footprints that `rooms` are asked to hold, sorted."""
    gpu_type: str = ""
    """GPU type of the nodes; empty where the stock's own name is it."""
    is_quota: bool = False
    """Whether it is a quota of a namespace: `gpus` are then units of its resource, and what uses it also has a seat."""
    is_exact: bool = True
    """Whether `rooms` hold everything that the nodes do, and not only all that is counted with larger footprints."""

    def holds(self, footprint: Footprint) -> int:
        """Instances of that footprint that fit beside all that was taken from the stock."""
        if self.rooms:
            wide = counted_as(self, footprint)
            return sum(count * wide.times_in(room) for room, count in self.rooms)
        narrower = (left // (footprint.gpus // width) for width, left in self.slots.items() if width <= footprint.gpus)
        return max(0, min((self.gpus // footprint.gpus, *narrower)))

    @property
    def kinds(self) -> tuple[tuple[tuple[Pattern, ...], int], ...]:
        """Maximal patterns of a node → number of such nodes."""
        found = Counter[tuple[Pattern, ...]]()
        for room, count in self.rooms:
            found[patterns_of(room, self.footprints) or ()] += count
        return tuple(found.items())

    def minus(self, footprint: Footprint, count: int) -> "Stock":
        """The stock after so many instances, on the nodes that they fill best; negative counts give back."""
        gpus = self.gpus - count * footprint.gpus
        slots = {width: left - count * (footprint.gpus // width) for width, left in self.slots.items()}
        rooms = Counter[Footprint]()
        for room, nodes in self.rooms:
            rooms[room] += nodes
        if self.rooms:
            counted = counted_as(self, footprint)
            rooms[counted] += max(0, -count)
            while count > 0 and (fitting := [room for room, n in rooms.items() if n and counted.times_in(room)]):
                best = min(fitting)
                taken = min(count, counted.times_in(best))
                rooms[best] -= 1
                rooms[best.minus(counted, taken)] += 1
                count -= taken
        return replace(self, gpus=gpus, slots=slots, rooms=tuple((room, n) for room, n in rooms.items() if n))


def counted_as(stock: Stock, footprint: Footprint) -> Footprint:
    """The footprint itself, or the larger one with which the stock counts it."""
    if footprint in stock.footprints:
        return footprint
    return next((each for each in stock.footprints if each.gpus == footprint.gpus), footprint)


def stock_of_nodes(rooms: Iterable[Footprint], footprints: Iterable[Footprint]) -> Stock:
    """Stock of nodes with these free resources, for instances of these footprints.

    With one footprint, the number of instances per node decides. With several, their widths do, where each width
    divides the next and neither CPU nor memory can bind. Otherwise every node holds one of its patterns.
    """
    asked = tuple(sorted(set(footprints)))
    cpus, memories = [(f.cpu_milli, f.gpus) for f in asked], [(f.memory_bytes, f.gpus) for f in asked]
    nodes = Counter[Footprint]()
    for room in rooms:
        if room.gpus > 0:  # what the instances can use of it: rooms that hold the same are then mostly equal
            cpu = _usable_amount(room.cpu_milli, room.gpus, cpus)
            nodes[Footprint(room.gpus, cpu, _usable_amount(room.memory_bytes, room.gpus, memories))] += 1
    gpus = sum(room.gpus * count for room, count in nodes.items())
    widths = sorted({each.gpus for each in asked})
    most_cpu, most_memory = (max(amount / width for amount, width in pairs) for pairs in (cpus, memories))
    devices_decide = all(wide % narrow == 0 for narrow, wide in pairwise(widths)) and all(
        room.cpu_milli >= room.gpus * most_cpu and room.memory_bytes >= room.gpus * most_memory for room in nodes
    )
    if len(asked) == 1 or devices_decide:
        only = asked[0] if len(asked) == 1 else None
        slots = {
            width: sum((only or Footprint(width)).times_in(room) * count for room, count in nodes.items())
            for width in widths
        }
        return Stock(gpus, {width: count for width, count in slots.items() if width > 1 or count < gpus})
    stock = Stock(gpus, rooms=tuple(sorted(nodes.items())), footprints=asked)
    if _has_few_patterns(stock):
        return stock
    largest = tuple(
        Footprint(
            width,
            max(each.cpu_milli for each in asked if each.gpus == width),
            max(each.memory_bytes for each in asked if each.gpus == width),
        )
        for width in widths
    )
    return replace(stock, footprints=largest, is_exact=False)


def _usable_amount(free: int, gpus: int, asked: Sequence[tuple[int, int]]) -> int:
    """Free amount, at most what the devices can make use of, in steps of the requests' greatest common divisor."""
    most = max(-(-amount * gpus // width) for amount, width in asked)
    step = gcd(*(amount for amount, _ in asked)) or 1
    return max(0, min(free, most)) // step * step if free < most else most


def _has_few_patterns(stock: Stock) -> bool:
    found = set()
    for room, _ in stock.rooms:
        patterns = patterns_of(room, stock.footprints)
        if patterns is None:
            return False
        found.add(patterns)
        if sum(map(len, found)) > MOST_PATTERNS:
            return False
    return True


Count = Any
"""Number of instances: a variable, an expression or a constant."""


@dataclass(frozen=True, slots=True, order=True)
class InstanceGroup:
    """Instances that are interchangeable where seats are counted."""

    stocks: tuple[str, ...]
    """Stocks that they may use, the least wanted by others first."""
    footprint: Footprint
    quotas: tuple[tuple[str, int], ...] = ()
    """Quotas that they use besides, with the units of each instance."""


Seats = Mapping[tuple[InstanceGroup, str], Count]
"""Instances by group and stock."""


def within_quotas(stock: Mapping[str, Stock], wanted: Mapping[InstanceGroup, int]) -> bool:
    """Whether these instances together are within all their quotas."""
    used = Counter[str]()
    for group, count in wanted.items():
        for name, units in group.quotas:
            used[name] += units * count
    return all(name not in stock or spent <= stock[name].gpus for name, spent in used.items() if spent)


def add_seats(
    problem: pulp.LpProblem,
    stock: Mapping[str, Stock],
    wanted: Mapping[InstanceGroup, Count],
    short: Mapping[str, pulp.LpVariable],
) -> Seats:
    """Adds the constraints that these instances have seats. Groups with a stock of no limit need none.

    A linear model: instances go to stocks that they may use, and every stock holds what is put there.

    Sets
        i ∈ groups of instances with one footprint and the same stocks, m ∈ stocks,
        p ∈ patterns of the nodes of m, in kinds of equal patterns
    Data
        gpus_i    devices of an instance;  stock_m  devices;  slots_mw  instances w devices wide that m's nodes hold
        units_iq  what an instance uses of quota q;  quota_q  what all may use of it
        hold_ip   instances of footprint i in pattern p;  nodes_k  nodes of a kind
    Variables
        x_im ∈ ℕ  instances of group i in stock m;  z_kp ∈ ℕ  nodes of kind k that are filled by pattern p
        short_m   missing devices, in the variant that finds a shortage
    Constraints
        Σ_m x_im = instances of i
        Σ gpus_i·x_im ≤ stock_m (+ short_m),   Σ w·⌊gpus_i/w⌋·x_im ≤ w·slots_mw (+ short_m)
        or, where CPU or memory can bind,
        Σ x_im ≤ Σ hold_ip·z_kp (+ extra_i),   Σ_p z_kp ≤ nodes_k,   Σ gpus_i·extra_i ≤ short_m
        Σ units_iq·(instances of i) ≤ quota_q (+ short_q)
    """
    for name, quota in stock.items():
        using = [units * count for group, count in wanted.items() for own, units in group.quotas if own == name]
        if quota.is_quota and using:
            problem += pulp.lpSum(using) <= quota.gpus + short.get(name, 0)
    limited = {group: count for group, count in wanted.items() if all(name in stock for name in group.stocks)}
    seats: dict[tuple[InstanceGroup, str], Count] = {}
    for number, (group, count) in enumerate(limited.items()):
        if len(group.stocks) == 1:
            seats[group, group.stocks[0]] = count
            continue
        # Where all who share these stocks have one footprint, it is a flow with whole numbers of its own accord.
        sharing = {each.footprint for each in limited if not set(each.stocks).isdisjoint(group.stocks)}
        is_flow = len(sharing) == 1 and group.footprint.gpus == 1 and not any(stock[n].rooms for n in group.stocks)
        kind = pulp.LpContinuous if is_flow else pulp.LpInteger
        own = {name: problem.add_variable(f"x_{number}_{m}", 0, cat=kind) for m, name in enumerate(group.stocks)}
        problem += pulp.lpSum(own.values()) == count
        seats |= {(group, name): variable for name, variable in own.items()}
    for number, (name, held) in enumerate(stock.items()):
        users = [(group.footprint, count) for (group, place), count in seats.items() if place == name]
        missing = short.get(name, 0)
        if users and held.rooms:
            _hold_patterns(problem, held, users, missing, number)
        elif users:
            problem += pulp.lpSum(f.gpus * count for f, count in users) <= held.gpus + missing
            for width, slots in held.slots.items():
                wide = [width * (f.gpus // width) * count for f, count in users if f.gpus >= width]
                if wide:
                    problem += pulp.lpSum(wide) <= width * slots + missing
    return seats


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
