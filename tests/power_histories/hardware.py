"""GPUs of the histories: limits take effect late, reboots reset them, and a device may fall off the bus and return."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from power.devices.backend import DeviceFacts, DeviceReading

MIN_W, MAX_W = 100.0, 400.0


@dataclass
class Gpu:
    """One GPU. It obeys; at a reboot it returns to its highest limit, and draws what its work wants under its limit."""

    uuid: str
    limit_w: float = MAX_W
    wants_w: float = MAX_W
    is_there: bool = True
    """Whether the bus shows it. A device that fell off keeps its limit, and may go on drawing."""
    since_boot_w: float | None = None
    """Limit before the last reboot, until its agent limited it again; None otherwise."""
    due: list[tuple[float, float]] = field(default_factory=list)

    @property
    def draw_w(self) -> float:
        return min(self.wants_w, self.limit_w)

    def settle(self, now_s: float) -> None:
        while self.due and self.due[0][0] <= now_s:
            self.limit_w, self.since_boot_w = self.due.pop(0)[1], None

    def order(self, watts: float, at_s: float) -> None:
        if not self.due or self.due[-1][1] != watts:
            self.due.append((at_s, watts))

    def reset(self) -> None:
        """What a reboot or a reset of the driver does."""
        before_w = self.limit_w if self.since_boot_w is None else self.since_boot_w
        self.limit_w, self.since_boot_w, self.is_there = MAX_W, before_w, True
        self.due.clear()


def facts_of(gpus: Mapping[str, Gpu]) -> tuple[DeviceFacts, ...]:
    """What a discovery finds: the devices that the bus shows."""
    return tuple(
        DeviceFacts(each.uuid, "Pretend", "pretend", MIN_W, MAX_W, MAX_W, can_limit=True)
        for each in gpus.values()
        if each.is_there
    )


def readings_of(gpus: Mapping[str, Gpu], at_s: float) -> Mapping[str, DeviceReading]:
    return {
        each.uuid: DeviceReading(each.uuid, at_s, each.draw_w, each.limit_w, each.due[-1][1] if each.due else None)
        for each in gpus.values()
        if each.is_there
    }
