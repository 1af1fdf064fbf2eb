"""Interface of device back ends, and the original limits of devices, which are recorded before the first change."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

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
    ramp_w_per_s: float | None = None
    """Rate above which the device does not let its draw rise, watts a second (NVML's power smoothing); None: any."""
    profiles: tuple[str, ...] = ()
    """Workload power profiles that the driver enforces of all that were requested: they change what a watt buys."""

    @property
    def remarks(self) -> str:
        """What else matters to people, beginning with a comma; empty for most devices."""
        forgets = ", persistence mode off" if self.is_persistent is False else ""
        ramp = f", rises by at most {self.ramp_w_per_s:g} W/s" if self.ramp_w_per_s else ""
        return f"{forgets}{ramp}" + (f", profile {' and '.join(self.profiles)}" if self.profiles else "")


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


T = TypeVar("T")


def of_each(facts_of: Callable[[T], DeviceFacts], devices: Iterable[T]) -> tuple[DeviceFacts, ...]:
    """Facts of the devices that answer: one that is lost hides no other. Raises DeviceError where none answers."""
    found, errors = [], []
    for each in devices:
        try:
            found.append(facts_of(each))
        except DeviceError as error:
            errors.append(error)
    if errors and not found:
        raise errors[0]
    return tuple(found)


TOLERANCE_W = 1.0
"""Tolerance for rounding: drivers round limits to whole watts or less."""
EARLIER = 7
"""Number of earlier limits remembered: more orders than a BMC may lag behind. Few, because a foreign limit similar to
one of them is mistaken for ours."""


@dataclass(frozen=True, slots=True)
class OriginalLimit:
    """Record of one device. Written to disk before its limit is changed for the first time."""

    limit_w: float
    """Limit that was found, which stopping and uninstalling restore: not the default."""
    last_set_w: float | None = None
    """Last limit that Tonnage requested; distinguishes it from a foreign limit after a crash."""
    earlier_w: tuple[float, ...] = ()
    """Other limits of ours that the device may have, newest first: requested earlier, or derived by the device from a
    request. A crash may come before the last one is set, a device may refuse or clamp it, and a BMC may lag some orders
    behind."""


def original_limit_of(known: Mapping[str, OriginalLimit], facts: DeviceFacts, found_w: float | None) -> OriginalLimit:
    """The record of a device when the agent starts. found_w: its present limit, None if it does not report one.

    After a crash our own limit is still in force: then the earlier record stays. Any other limit was set by something
    else since, and is the one to restore. After a reboot the device has its default, which is likewise restored.
    """
    before = known.get(facts.uuid)
    if found_w is None:
        return before or OriginalLimit(facts.default_w)
    return (
        before
        if before is not None and any(_alike(found_w, each) for each in _ours(before))
        else OriginalLimit(found_w)
    )


def before_setting(previous: OriginalLimit, limit_w: float, enforced_w: float | None = None) -> OriginalLimit:
    """The record to write before this limit is requested. enforced_w: the limit that the device was seen to enforce
    last.

    If that is ours it stays in the record, however many orders the device refuses.
    """
    ours = _ours(previous)
    kept = [each for each in ours if enforced_w is not None and _alike(each, enforced_w)]
    others = [each for each in dict.fromkeys((*kept, *ours)) if each != limit_w]
    return replace(previous, last_set_w=limit_w, earlier_w=tuple(others[:EARLIER]))


def after_setting(previous: OriginalLimit, enforced_w: float) -> OriginalLimit:
    """The record to write when a device enforces this limit after a request: a clamping device derived it from ours."""
    if any(_alike(enforced_w, each) for each in _ours(previous)):
        return previous
    return replace(previous, earlier_w=(enforced_w, *previous.earlier_w)[:EARLIER])


def tell_the_same(known: Mapping[str, OriginalLimit], now: Mapping[str, OriginalLimit]) -> bool:
    """Whether an agent that finds `known` restores the same as with `now`, and takes at least its limits for ours."""
    return known.keys() == now.keys() and all(
        known[uuid].limit_w == each.limit_w
        and (known[uuid].last_set_w is None) == (each.last_set_w is None)
        and set(_ours(each)) <= set(_ours(known[uuid]))
        for uuid, each in now.items()
    )


def _ours(previous: OriginalLimit) -> tuple[float, ...]:
    """Limits of ours that the device may have."""
    return () if previous.last_set_w is None else (previous.last_set_w, *previous.earlier_w)


def _alike(one_w: float, other_w: float) -> bool:
    return abs(one_w - other_w) <= TOLERANCE_W


def limit_to_restore(previous: OriginalLimit, facts: DeviceFacts) -> float | None:
    """The limit to restore on exit; None if none was ever set."""
    if previous.last_set_w is None:
        return None
    return min(max(previous.limit_w, facts.min_w), facts.max_w)
