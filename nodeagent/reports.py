"""Contents of an agent's messages: the devices that it has, and the state of each."""

from collections.abc import Iterator, Mapping

from power.devices.backend import DeviceFacts, DeviceReading, OriginalLimit
from power.leases.holder import Bursting, Holder, phase_of
from power.leases.messages import DeviceInventory, DeviceReport, Inventory


def inventory_of(holder: Holder, facts: Mapping[str, DeviceFacts], previous: Mapping[str, OriginalLimit]) -> Inventory:
    """Inventory of all devices of the node, including those that are only read."""
    return Inventory(
        holder.node,
        holder.life,
        {
            uuid: DeviceInventory(
                model=each.model,
                min_w=each.min_w,
                max_w=each.max_w,
                default_w=each.default_w,
                previous_w=previous[uuid].limit_w if uuid in previous else each.default_w,
                managed=uuid in holder.devices,
                why_not=each.why_not,
            )
            for uuid, each in facts.items()
        },
    )


def device_reports(
    readings: Mapping[str, DeviceReading],
    draw_w: Mapping[str, float],
    allowed_w: Mapping[str, float],
    bursting: Bursting,
    now_s: float,
) -> Iterator[tuple[str, DeviceReport]]:
    """State of each device that reports its draw and its limit. draw_w: mean draws of the last second, by device."""
    for uuid, each in readings.items():
        if uuid not in draw_w or each.limit_w is None:
            continue
        yield (
            uuid,
            DeviceReport(
                draw_w=draw_w[uuid],
                age_s=max(0.0, now_s - each.at_s),
                # While a device may burst, its limit is not its lease; the lease is what it must keep on average.
                cap_w=allowed_w[uuid] if bursting.now.get(uuid) else each.limit_w,
                phase=phase_of(each),
            ),
        )
