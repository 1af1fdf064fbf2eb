"""Devices of a node as its slices list them, and the physical devices ("cells") of which they are parts."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from controller.api.notation import quantity
from controller.api.structs import Amount
from controller.dra.objects import Device, DeviceId, DeviceTaint, ResourceClaim, ResourceSlice

WHOLE_MILLI = 1000
"""Thousandths of a cell that a whole device takes."""
OTHER_KINDS = ("mig", "vfio")
"""Values of the attribute `type` in NVIDIA's driver for devices that are parts or other views of a GPU."""

CounterName = tuple[str, str, str, str]
"""(driver, pool, counter set, counter)."""
CounterSetName = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Listed:
    """Published device."""

    id: DeviceId
    device: Device
    withheld: str = ""
    """Reason why it must not be allocated; empty when it may be."""
    cell: int = 0
    """Number of the physical device that it is, or is a part of: devices that share counters are of one."""
    milli: int = WHOLE_MILLI
    """Thousandths of the cell that it takes: its part of all counters, on average. So those of devices that are
    allocated together never exceed the whole."""
    uses: Mapping[CounterName, Decimal] = field(default_factory=dict)

    @property
    def taints(self) -> tuple[DeviceTaint, ...]:
        """Taints that keep claims off it which do not tolerate them."""
        return tuple(taint for taint in self.device.taints if taint.effect in ("NoSchedule", "NoExecute"))

    def part(self, consumed: Mapping[str, Amount | Decimal]) -> int:
        """Thousandths of a shared device that these amounts of its capacity are, on average."""
        has = {name: amount for name, c in self.device.capacity.items() if (amount := quantity(c.value))}
        parts = [quantity(consumed.get(name, 0)) / amount for name, amount in has.items()]
        return min(max(int(sum(parts) / max(len(parts), 1) * WHOLE_MILLI), 1), WHOLE_MILLI)


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """Devices of a node."""

    devices: tuple[Listed, ...] = ()
    resource: str = ""
    """Extended resource as which the cells are counted."""
    problems: tuple[str, ...] = ()
    """Reasons why the node is unschedulable."""
    counters: Mapping[CounterName, Decimal] = field(default_factory=dict)
    """What all devices of a pool have of each counter together."""
    cells: int = 0

    @property
    def has_parts(self) -> bool:
        """Whether several claims can hold parts of one cell."""
        return any(each.uses or each.device.allow_multiple_allocations for each in self.devices)

    @property
    def usable(self) -> tuple[Listed, ...]:
        """Devices that any claim may get."""
        return tuple(listed for listed in self.devices if not listed.withheld and not listed.taints)

    def amounts(self, claim: ResourceClaim) -> dict[int, int]:
        """Thousandths of cells that a claim holds here, by cell."""
        found, listed = Counter[int](), {each.id: each for each in self.devices}
        for result in claim.results:
            if (device := listed.get(result.id)) is not None:
                found[device.cell] += device.milli if result.share_id is None else device.part(result.consumed_capacity)
        return {cell: min(milli, WHOLE_MILLI) for cell, milli in found.items()}

    def withheld(self, listed: Listed) -> str:
        """Reason why the device is not for every claim; empty when it is."""
        taint = next(iter(listed.taints), None)
        return listed.withheld or (f"its driver tainted it {taint.key}:{taint.effect}" if taint else "")


def inventory_from(slices: Iterable[ResourceSlice], drivers: Mapping[str, str]) -> DeviceInventory:
    """Inventory of one node.

    slices: all slices of that node, and those with counter sets of its pools. drivers: driver → extended resource as
    which its devices are counted; other drivers are ignored.

    Only the highest generation of a pool counts, and only complete and valid pools can be allocated from. Source:
    resource/v1 types.go, `ResourcePool`; dynamic-resource-allocation/structured, `buildPool`.
    """
    pools: defaultdict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for each in slices:
        if each.spec.driver in drivers:
            pools[each.spec.driver, each.spec.pool.name].append(each)
    problems, found, counters = list[str](), list[tuple[DeviceId, Device]](), dict[CounterName, Decimal]()
    cell_of = dict[CounterSetName, CounterSetName]()
    """Counter set that names the cell, by counter set."""
    for (driver, pool), parts in sorted(pools.items()):
        newest = max(part.spec.pool.generation for part in parts)
        current = [part for part in parts if part.spec.pool.generation == newest]
        expected = current[0].spec.pool.resource_slice_count
        if len(current) != expected:
            problems.append(f"pool {pool} of {driver} is incomplete: {len(current)} of {expected} slices are there")
        devices = [(DeviceId(driver, pool, device.name), device) for part in current for device in part.spec.devices]
        sets = [each for part in current for each in part.spec.shared_counters]
        try:
            for shared in sets:
                cell_of[driver, pool, shared.name] = driver, pool, shared.name
                counters |= {(driver, pool, shared.name, n): quantity(c.value) for n, c in shared.counters.items()}
            unknown = [str(of) for of, device in devices if not _uses(of, device).keys() <= counters.keys()]
        except ValueError as error:
            problems.append(f"pool {pool} of {driver} is invalid: a counter {error}")
            continue
        if unknown:
            problems.append(f"pool {pool} of {driver} is invalid: no counter set has what {unknown[0]} consumes")
        if len({of for of, _ in devices}) < len(devices) or len({shared.name for shared in sets}) < len(sets):
            problems.append(f"pool {pool} of {driver} is invalid: it names a device or a counter set twice")
        found += devices
    resources = sorted({drivers[driver] for driver, _ in pools})
    if len(resources) > 1:
        problems.append(f"its drivers offer {' and '.join(resources)}: a node has GPUs of one kind")
    uses = {of: _uses(of, device) if not problems else {} for of, device in found}
    for of_device in uses.values():
        joined = {cell_of[name[:3]] for name in of_device}
        if len(joined) > 1:
            cell_of |= {key: min(joined) for key, cell in cell_of.items() if cell in joined}
    sizes = Counter(cell_of[name[:3]] for name, amount in counters.items() if amount)
    found.sort(key=lambda each: (each[0].driver, each[0].pool, _natural(each[0].device)))
    listed, cells = list[Listed](), dict[object, int]()
    for of, device in found:
        cell, milli = next((cell_of[name[:3]] for name in uses[of]), None), WHOLE_MILLI
        if cell is not None:
            parts_of = [amount / counters[name] for name, amount in uses[of].items() if counters[name]]
            milli = min(max(int(sum(parts_of) / max(sizes[cell], 1) * WHOLE_MILLI), 1), WHOLE_MILLI)
        number = cells.setdefault(of if cell is None else cell, len(cells))
        listed.append(Listed(of, device, _unsupported(device), number, milli, uses[of]))
    return DeviceInventory(tuple(listed), resources[0] if resources else "", tuple(problems), counters, len(cells))


def _uses(of: DeviceId, device: Device) -> dict[CounterName, Decimal]:
    """Amounts of counters that a device takes. Raises ValueError."""
    uses = device.consumes_counters
    return {(of.driver, of.pool, u.counter_set, n): quantity(c.value) for u in uses for n, c in u.counters.items()}


def _unsupported(device: Device) -> str:
    """Reason why a device must never be allocated; "" for none."""
    kind = device.attributes.get("type")
    if device.binding_conditions:
        return "it has binding conditions (bindingConditions), which are not supported"
    if kind is not None and kind.string in OTHER_KINDS and not device.consumes_counters:
        return f"it is a {kind.string} device, not a whole GPU"
    return ""


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts gpu-2 before gpu-10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)
