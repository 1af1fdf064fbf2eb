"""Device inventory of a node, numbered, from the ResourceSlices that its drivers publish."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.dra.objects import Device, DeviceId, ResourceSlice

OTHER_KINDS = ("mig", "vfio")
"""Values of the attribute `type` in NVIDIA's driver for devices that are parts or other views of a GPU."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Published device."""

    id: DeviceId
    device: Device
    withheld: str = ""
    """Reason why it must not be allocated; empty when it may be."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Devices of a node. The number of a device is its index in `devices`."""

    devices: tuple[Listed, ...] = ()
    resource: str = ""
    """Extended resource as which the devices are counted."""
    problems: tuple[str, ...] = ()
    """Reasons why the node is unschedulable."""

    def number(self, device: DeviceId) -> int | None:
        return next((number for number, listed in enumerate(self.devices) if listed.id == device), None)

    @property
    def usable(self) -> tuple[Listed, ...]:
        return tuple(listed for listed in self.devices if not listed.withheld)


def inventory_from(slices: Iterable[ResourceSlice], drivers: Mapping[str, str]) -> Inventory:
    """Inventory of one node.

    slices: all slices of that node. drivers: driver → extended resource as which its devices are counted; other drivers
    are ignored.

    Only the highest generation of a pool counts, and only complete pools can be allocated from. Source: resource/v1
    types.go, `ResourcePool`.
    """
    pools: defaultdict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for each in slices:
        if each.spec.driver in drivers:
            pools[each.spec.driver, each.spec.pool.name].append(each)
    problems, listed = [], []
    for (driver, pool), parts in sorted(pools.items()):
        newest = max(part.spec.pool.generation for part in parts)
        current = [part for part in parts if part.spec.pool.generation == newest]
        expected = current[0].spec.pool.resource_slice_count
        if len(current) != expected:
            problems.append(f"pool {pool} of {driver} is incomplete: {len(current)} of {expected} slices exist")
        listed += [_listed(driver, pool, device) for part in current for device in part.spec.devices]
    resources = sorted({drivers[driver] for driver, _ in pools})
    if len(resources) > 1:
        problems.append(f"its drivers offer {' and '.join(resources)}: a node has GPUs of one kind")
    devices = tuple(sorted(listed, key=lambda each: (each.id.driver, each.id.pool, _natural(each.id.device))))
    return Inventory(devices, resources[0] if resources else "", tuple(problems))


def _listed(driver: str, pool: str, device: Device) -> Listed:
    return Listed(DeviceId(driver, pool, device.name), device, _withheld(device))


def _withheld(device: Device) -> str:
    """Reason why a device must not be allocated: an unsupported feature, or a taint of its driver; "" for none."""
    kind = device.attributes.get("type")
    if device.consumes_counters:
        return "it consumes shared counters (partitionable devices are not supported)"
    if device.allow_multiple_allocations:
        return "it allows several allocations (consumable capacity is not supported)"
    if device.binding_conditions:
        return "it has binding conditions, which are not supported"
    if kind is not None and kind.string in OTHER_KINDS:
        return f"it is a {kind.string} device, not a whole GPU"
    taint = next((taint for taint in device.taints if taint.effect in ("NoSchedule", "NoExecute")), None)
    return f"its driver tainted it {taint.key}:{taint.effect}" if taint else ""


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts gpu-2 before gpu-10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)
