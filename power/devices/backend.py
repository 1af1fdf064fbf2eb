"""What a device back end is: it finds the devices of one node, reads them, and sets their limits. The words only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cluster.errors import TonnageError


class DeviceError(TonnageError):
    """A device, or the library that speaks for it, refused or did not answer. The code says which, for metrics."""

    def __init__(self, code: str, words: str) -> None:
        self.code, self.words = code, words
        super().__init__(f"{code}: {words}")

    def __reduce__(self) -> tuple[type["DeviceError"], tuple[str, str]]:
        return (type(self), (self.code, self.words))


NO_LIBRARY = "NoLibrary"
"""The back end's library or driver is not on this machine: there are none of its devices."""
NO_PERMISSION = "NoPermission"
LOST = "Lost"
"""The device fell off the bus or is unknown by that id."""
REFUSED = "Refused"
"""The device does not take this value, or takes none."""
SILENT = "Silent"
"""No answer in time."""
BROKEN = "Broken"
"""Anything else that the library says."""


THROTTLES = ("power_cap", "hw_slowdown", "thermal", "power_brake")
"""What may hold a device's clocks down: its limit, the hardware for whatever cause, heat, the brake that power supplies
pull by wire. Beside one of the last two, `hw_slowdown` says that the hardware did it."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device is and can do, discovered, never assumed."""

    uuid: str
    """Stays when a device is found under another index after a reset."""
    model: str
    """As the vendor names it, e.g. `NVIDIA H100 80GB HBM3`."""
    backend: str
    """`nvml`, `amdsmi`, `redfish`, `pretend`."""
    min_w: float
    max_w: float
    default_w: float
    """The limit after a reboot or a reset."""
    can_limit: bool
    """Whether its limit can be set here at all: some devices have min = default, some drivers take none."""
    clocks_mhz: tuple[float, float] | None = None
    """The clocks that can be locked, lowest and highest; None: they cannot be."""
    why_not: str = ""
    """Why it cannot be limited, for people."""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One look at one device. None where the device does not tell."""

    uuid: str
    at_s: float
    """By the reader's monotonic clock, when the answer came."""
    draw_w: float | None
    limit_w: float | None
    """The limit that is enforced now: the least of what anyone asked for."""
    requested_w: float | None = None
    """The limit that was asked for in band; differs from `limit_w` when a BMC or the brake holds it lower."""
    energy_j: float | None = None
    """Counter since the driver was loaded; its difference is the true mean draw between two readings."""
    busy_share: float | None = None
    """Share of the last sample period in which any kernel ran, 0..1."""
    memory_busy_share: float | None = None
    """Share in which memory was read or written, 0..1."""
    sm_clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttled_by: tuple[str, ...] | None = None
    """What holds its clocks down, of THROTTLES; None where nobody tells."""


class Backend(Protocol):
    """One kind of devices on one node. Calls block; whoever cannot wait runs them in a process of its own."""

    def discover(self) -> tuple[DeviceFacts, ...]:
        """The devices that are here now. Raises DeviceError (NO_LIBRARY where there can be none)."""
        ...

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        """Every device that was discovered, by uuid; one that fails does not hide the others."""
        ...

    def set_limit(self, uuid: str, limit_w: float) -> float:
        """Ask for a limit and read back what is enforced now, watts. Raises DeviceError: then nothing is known."""
        ...

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        """Hold the clock at or below this, or let it go. Raises DeviceError."""
        ...

    def close(self) -> None: ...
