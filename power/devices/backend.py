"""Protocol of device back ends: discovering the devices of one node, reading them, and setting their limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cluster.errors import TonnageError


class DeviceError(TonnageError):
    """Failure of a device or of the library that controls it. The code classifies it for metrics."""

    def __init__(self, code: str, words: str) -> None:
        self.code, self.words = code, words
        super().__init__(f"{code}: {words}")

    def __reduce__(self) -> tuple[type["DeviceError"], tuple[str, str]]:
        return (type(self), (self.code, self.words))


NO_LIBRARY = "NoLibrary"
"""The back end's library or driver is missing on this machine, so it has none of its devices."""
NO_PERMISSION = "NoPermission"
LOST = "Lost"
"""The device fell off the bus or is unknown by that id."""
REFUSED = "Refused"
"""The device does not accept this value, or accepts none."""
SILENT = "Silent"
"""No answer within the deadline."""
BROKEN = "Broken"
"""Any other error of the library."""


THROTTLES = ("power_cap", "hw_slowdown", "thermal", "power_brake")
"""Causes that may hold a device's clocks down: its limit, the hardware for any reason, heat, or the brake that power
supplies trigger by wire. Together with one of the last two, `hw_slowdown` means that the hardware applied it."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Facts about a device: what it is and can do, discovered and never assumed."""

    uuid: str
    """Identifier that stays the same when a device gets another index after a reset."""
    model: str
    """Name given by the vendor, e.g. `NVIDIA H100 80GB HBM3`."""
    backend: str
    """Back end: `nvml`, `amdsmi`, `redfish` or `pretend`."""
    min_w: float
    max_w: float
    default_w: float
    """Limit after a reboot or a reset."""
    can_limit: bool
    """Whether its limit can be set here at all: some devices have min = default, some drivers accept none."""
    clocks_mhz: tuple[float, float] | None = None
    """Lowest and highest clock that can be locked; None: clocks cannot be locked."""
    why_not: str = ""
    """Reason why it cannot be limited, for people."""
    is_persistent: bool | None = None
    """Whether the driver stays loaded, and with it a limit, while no process uses the device (NVML's persistence mode);
    None where that is not reported."""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One reading of one device. None where the device does not report a value."""

    uuid: str
    at_s: float
    """Instant of the answer by the reader's monotonic clock."""
    draw_w: float | None
    limit_w: float | None
    """Limit enforced now: the lowest of all requested ones."""
    requested_w: float | None = None
    """Limit requested in band; differs from `limit_w` when a BMC or the brake holds it lower."""
    energy_j: float | None = None
    """Energy counter since the driver was loaded; its difference gives the true mean draw between two readings."""
    busy_share: float | None = None
    """Fraction of the last sample period in which any kernel ran, 0..1."""
    memory_busy_share: float | None = None
    """Fraction in which memory was read or written, 0..1."""
    sm_clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttled_by: tuple[str, ...] | None = None
    """Causes that hold its clocks down, of THROTTLES; None where they are not reported."""
    uncorrected_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded."""


class Backend(Protocol):
    """Devices of one kind on one node. Calls block; a caller that cannot wait runs them in a separate process."""

    def discover(self) -> tuple[DeviceFacts, ...]:
        """The devices present now. Raises DeviceError (NO_LIBRARY where there can be none)."""
        ...

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        """Every discovered device by uuid; one that fails does not hide the others."""
        ...

    def set_limit(self, uuid: str, limit_w: float) -> float:
        """Requests a limit; returns what is enforced now, in watts. Raises DeviceError: the limit is then unknown."""
        ...

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        """Limits the clock to at most this, or releases it. Raises DeviceError."""
        ...

    def close(self) -> None: ...
