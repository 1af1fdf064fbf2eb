"""Stock: the nodes that the same instances may use, or an inventory of devices, with what it holds together."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import gcd

from placement.seating.footprint import Footprint, Pattern, patterns_of

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
