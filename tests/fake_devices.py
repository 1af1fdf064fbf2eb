"""Fake devices that draw, obey late, clamp, refuse, misreport, hang and reset, as real ones were seen to do.

All behaviour follows from the clock and the calls: the same calls give the same answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.clock import Clock
from power.devices.backend import LOST, REFUSED, SILENT, DeviceError, DeviceFacts, DeviceReading

LOWEST_MHZ, HIGHEST_MHZ = 210.0, 1980.0


@dataclass(slots=True)
class FakeDevice:
    """One fake device: its properties, the draw of its work, and its misbehaviour."""

    uuid: str
    model: str = "Pretend H100"
    min_w: float = 200.0
    max_w: float = 700.0
    default_w: float = 700.0
    idle_w: float = 70.0
    wants_w: Callable[[float], float] = lambda _: 600.0
    """Draw of its work without a limit, in watts, as a function of the instant."""
    obeys_after_s: float = 1.0
    """Delay until a new limit takes effect: about 1 s in band; up to 40 s through a BMC."""
    clamps_to_w: tuple[float, float] | None = None
    """Range to which any requested value is clamped without an error (seen on an H100 with 200 W)."""
    refuses: bool = False
    lies: bool = False
    """Whether it reports the requested limit while enforcing the old one."""
    stuck: bool = False
    """Whether it accepts a new limit but keeps reporting and enforcing the old one."""
    silent_from_s: float | None = None
    """Instant from which every call about it fails with SILENT."""
    lost_from_s: float | None = None
    frozen_draw_w: float | None = None
    """Draw that it reports, whatever it draws."""
    overshoot_share: float = 0.03
    """Fraction by which the draw may exceed the limit, since limiters react late."""
    brake_w: float | None = None
    """Draw that an engaged hardware brake allows, whatever the limit; None while no brake is engaged."""
    tells_throttles: bool = True
    """Whether it reports what holds its clocks down: AMD's devices and those behind a BMC do not."""
    locked_mhz: float | None = None
    """Clock that it is locked to. Its draw does not depend on it."""
    is_persistent: bool | None = None
    """Whether its driver stays loaded without a client, as reported."""
    _steps: list[tuple[float, float]] = field(default_factory=list)
    """(start instant, enforced limit), rising in time."""
    _reported_w: float | None = None
    _energy_j: float = 0.0
    _metered_s: float | None = None

    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            uuid=self.uuid,
            model=self.model,
            backend="pretend",
            min_w=self.min_w,
            max_w=self.max_w,
            default_w=self.default_w,
            can_limit=self.min_w < self.max_w,
            clocks_mhz=(LOWEST_MHZ, HIGHEST_MHZ),
            is_persistent=self.is_persistent,
        )

    def enforced_w(self, now_s: float) -> float:
        """Limit enforced now, whatever is reported."""
        past = [limit for since_s, limit in self._steps if since_s <= now_s]
        return past[-1] if past else self.default_w

    def draw_w(self, now_s: float) -> float:
        """Draw now: that of its work, limited by the limit with its overshoot, and by the brake."""
        limited_w = min(self.wants_w(now_s), self.enforced_w(now_s) * (1 + self.overshoot_share))
        return max(self.idle_w, limited_w if self.brake_w is None else min(limited_w, self.brake_w))

    def reboot(self, now_s: float) -> None:
        """Resets the limit, as a driver reload, a reset or a reboot does."""
        self._steps = [(now_s, self.default_w)]
        self._reported_w = None

    def set_limit(self, limit_w: float, now_s: float) -> float:
        self._check(now_s)
        if self.refuses or (self.clamps_to_w is None and not self.min_w <= limit_w <= self.max_w):
            raise DeviceError(REFUSED, f"{limit_w:g} W is not in {self.min_w:g}..{self.max_w:g} W")
        low, high = self.clamps_to_w or (self.min_w, self.max_w)
        taken_w = min(max(limit_w, low), high)
        if not (self.lies or self.stuck):
            self._steps = [*self._steps[-3:], (now_s + self.obeys_after_s, taken_w)]
        self._reported_w = limit_w if self.lies else self.enforced_w(now_s) if self.stuck else taken_w
        return self._reported_w

    def read(self, now_s: float) -> DeviceReading:
        self._check(now_s)
        if self._metered_s is not None:
            self._energy_j += self.draw_w(now_s) * (now_s - self._metered_s)
        self._metered_s = now_s
        reported_w = self._reported_w if self._reported_w is not None else self.enforced_w(now_s)
        drawn_w = self.draw_w(now_s)
        return DeviceReading(
            uuid=self.uuid,
            at_s=now_s,
            draw_w=self.frozen_draw_w if self.frozen_draw_w is not None else drawn_w,
            limit_w=reported_w,
            requested_w=reported_w,
            energy_j=self._energy_j,
            busy_share=0.0 if drawn_w <= self.idle_w else 1.0,
            sm_clock_mhz=HIGHEST_MHZ if self.locked_mhz is None else self.locked_mhz,
            throttled_by=self._throttled_by(now_s),
        )

    def _throttled_by(self, now_s: float) -> tuple[str, ...] | None:
        if not self.tells_throttles:
            return None
        capped = ("power_cap",) if self.wants_w(now_s) > self.enforced_w(now_s) else ()
        return capped if self.brake_w is None else (*capped, "hw_slowdown", "power_brake")

    def _check(self, now_s: float) -> None:
        if self.lost_from_s is not None and now_s >= self.lost_from_s:
            raise DeviceError(LOST, f"{self.uuid} is not on the bus")
        if self.silent_from_s is not None and now_s >= self.silent_from_s:
            raise DeviceError(SILENT, f"{self.uuid} does not answer")


class FakeDevices:
    """Fake devices of a node behind the protocol of real ones."""

    def __init__(self, devices: Sequence[FakeDevice], clock: Clock) -> None:
        self._devices = {device.uuid: device for device in devices}
        self._clock = clock

    def discover(self) -> tuple[DeviceFacts, ...]:
        return tuple(device.facts() for device in self._devices.values())

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        now_s = self._clock()
        return {uuid: _or_error(lambda d=device: d.read(now_s)) for uuid, device in self._devices.items()}  # type: ignore[misc]

    def set_limit(self, uuid: str, limit_w: float) -> float:
        return self._device(uuid).set_limit(limit_w, self._clock())

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        self._device(uuid).locked_mhz = max_mhz

    def close(self) -> None:
        return None

    def _device(self, uuid: str) -> FakeDevice:
        if uuid not in self._devices:
            raise DeviceError(LOST, f"{uuid} is not here")
        return self._devices[uuid]


def _or_error(read: Callable[[], DeviceReading]) -> DeviceReading | DeviceError:
    try:
        return read()
    except DeviceError as error:
        return error
