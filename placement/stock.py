"""Footprint of an instance on its node, and the sets of instances that one node holds together."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, pairwise
from math import gcd
from typing import Any

import pulp

from cluster.workloads import PodShape


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


def footprint_of(shape: PodShape) -> Footprint:
    return Footprint(shape.gpus, shape.cpu_milli, shape.memory_bytes)


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

    def plus(self, devices: int) -> "Stock":
        """The stock with one more node of so many devices, and as much CPU and memory as they are asked to have."""
        slots = {width: count + devices // width for width, count in self.slots.items()}
        room = Footprint(
            devices,
            max((devices * f.cpu_milli for f in self.footprints), default=0),
            max((devices * f.memory_bytes for f in self.footprints), default=0),
        )
        rooms = (*self.rooms, (room, 1)) if self.rooms else ()
        return replace(self, gpus=self.gpus + devices, slots=slots, rooms=rooms)

    def minus(self, footprint: Footprint, count: int) -> "Stock":
        """The stock after so many instances, on the nodes that they fill best; negative counts give back."""
        gpus = self.gpus - count * footprint.gpus
        slots = {width: left - count * (footprint.gpus // width) for width, left in self.slots.items()}
        rooms = _rooms_after(self.rooms, counted_as(self, footprint), count) if self.rooms else ()
        return replace(self, gpus=gpus, slots=slots, rooms=rooms)


def counted_as(stock: Stock, footprint: Footprint) -> Footprint:
    """The footprint itself, or the larger one with which the stock counts it."""
    if footprint in stock.footprints:
        return footprint
    return next((each for each in stock.footprints if each.gpus == footprint.gpus), footprint)


def _rooms_after(
    rooms: tuple[tuple[Footprint, int], ...], footprint: Footprint, count: int
) -> tuple[tuple[Footprint, int], ...]:
    left = Counter[Footprint]()
    for room, nodes in rooms:
        left[room] += nodes
    left[footprint] += max(0, -count)
    while count > 0:
        fitting = [room for room, nodes in left.items() if nodes and footprint.times_in(room)]
        if not fitting:
            break
        best = min(fitting)
        taken = min(count, footprint.times_in(best))
        left[best] -= 1
        left[best.minus(footprint, taken)] += 1
        count -= taken
    return tuple((room, nodes) for room, nodes in left.items() if nodes)


def stock_of_nodes(rooms: Iterable[Footprint], footprints: Iterable[Footprint]) -> Stock:
    """Stock of nodes with these free resources, for instances of these footprints.

    With one footprint, the number of instances per node decides. With several, their widths do, where each width
    divides the next and neither CPU nor memory can bind. Otherwise every node holds one of its patterns.
    """
    asked = tuple(sorted(set(footprints)))
    nodes = Counter(_usable(room, asked) for room in rooms if room.gpus > 0)
    gpus = sum(room.gpus * count for room, count in nodes.items())
    widths = sorted({each.gpus for each in asked})
    if len(asked) == 1 or _widths_decide(nodes, asked, widths):
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


def _usable(room: Footprint, asked: Sequence[Footprint]) -> Footprint:
    """What instances of these footprints can use of a room: rooms that hold the same are then mostly equal."""
    return Footprint(
        room.gpus,
        _usable_amount(room.cpu_milli, room.gpus, [(each.cpu_milli, each.gpus) for each in asked]),
        _usable_amount(room.memory_bytes, room.gpus, [(each.memory_bytes, each.gpus) for each in asked]),
    )


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


def _widths_decide(nodes: Iterable[Footprint], asked: Iterable[Footprint], widths: list[int]) -> bool:
    """Whether devices alone decide what a node holds, and slots per width count that exactly."""
    cpu = max(each.cpu_milli / each.gpus for each in asked)
    memory = max(each.memory_bytes / each.gpus for each in asked)
    is_chain = all(wide % narrow == 0 for narrow, wide in pairwise(widths))
    return is_chain and all(
        room.cpu_milli >= room.gpus * cpu and room.memory_bytes >= room.gpus * memory for room in nodes
    )


Count = Any
"""Number of instances: a variable, an expression or a constant."""


@dataclass(frozen=True, slots=True, order=True)
class InstanceGroup:
    """Instances that are interchangeable where seats are counted."""

    stocks: tuple[str, ...]
    """Stocks that they may use, the least wanted by others first."""
    footprint: Footprint


Seats = Mapping[tuple[InstanceGroup, str], Count]
"""Instances by group and stock."""


def add_seats(
    problem: pulp.LpProblem,
    stock: Mapping[str, Stock],
    wanted: Mapping[InstanceGroup, Count],
    short: Mapping[str, pulp.LpVariable],
) -> Seats:
    """Adds the constraints that these instances have seats. Groups with a stock of no limit need none."""
    limited = {group: count for group, count in wanted.items() if all(name in stock for name in group.stocks)}
    seats: dict[tuple[InstanceGroup, str], Count] = {}
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


def _is_transport(group: InstanceGroup, groups: Mapping[InstanceGroup, Count], stock: Mapping[str, Stock]) -> bool:
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
