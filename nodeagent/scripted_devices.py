"""Scripted fake devices, for trying Tonnage without GPUs: files define what they do and record the limits set on them.

In `folder`: `script.json` defines how devices behave and is read again whenever it changes. `limits.json` holds the
limits that they enforce, so that these outlive the process as on real devices. `orders.jsonl` has a line for every
limit that was set, with the machine's monotonic clock.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cluster.clock import Clock
from cluster.errors import UNREADABLE
from power.devices.backend import BROKEN, LOST, REFUSED, SILENT, DeviceError, DeviceFacts, DeviceReading

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
            max_clock_mhz=HIGHEST_MHZ,
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


ALL_DEVICES = "*"


class Behaviour(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Behaviour of a device from now on. See nodeagent.scripted_devices.PretendDevice."""

    wants_w: float = 600.0
    refuses: bool = False
    lies: bool = False
    stuck: bool = False
    silent: bool = False
    """Whether neither readings nor orders get an answer."""
    blind: bool = False
    """Whether readings get no answer while orders do."""
    lost: bool = False
    clamps_to_w: tuple[float, float] | None = None
    frozen_draw_w: float | None = None
    brake_w: float | None = None


class ScriptedDevices:
    """Back end of `count` fake devices, named after their node."""

    def __init__(self, node: str, count: int, clock: Callable[[], float], folder: Path | None = None) -> None:
        self._clock, self._folder = clock, folder
        self._devices = {
            uuid: FakeDevice(uuid, obeys_after_s=0.0)
            for uuid in (f"pretend-{node}-{number}" for number in range(count))
        }
        self._behind = FakeDevices(tuple(self._devices.values()), clock)
        self._blind: frozenset[str] = frozenset()
        self._script_is_of_ns = -1
        for uuid, limit_w in self._kept().items():
            if uuid in self._devices:
                self._devices[uuid].set_limit(limit_w, clock())

    def discover(self) -> tuple[DeviceFacts, ...]:
        self._follow()
        return self._behind.discover()

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        self._follow()
        silent = DeviceError("Silent", "its script makes it unreadable")
        return {uuid: silent if uuid in self._blind else each for uuid, each in self._behind.read().items()}

    def set_limit(self, uuid: str, limit_w: float) -> float:
        self._follow()
        enforced_w = self._behind.set_limit(uuid, limit_w)
        if self._folder is not None:
            kept = {name: device.enforced_w(self._clock()) for name, device in self._devices.items()}
            scratch = self._folder / ".limits.json.new"
            scratch.write_text(json.dumps(kept), encoding="utf-8")
            scratch.replace(self._folder / "limits.json")
            line = json.dumps({"at_s": self._clock(), "uuid": uuid, "limit_w": enforced_w})
            with (self._folder / "orders.jsonl").open("a", encoding="utf-8") as orders:
                orders.write(line + "\n")
        return enforced_w

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        self._behind.set_clocks(uuid, max_mhz)

    def close(self) -> None:
        return None

    def _kept(self) -> Mapping[str, float]:
        try:
            return (
                msgspec.json.decode((self._folder / "limits.json").read_bytes(), type=dict[str, float])
                if self._folder
                else {}
            )
        except FileNotFoundError:
            return {}

    def _follow(self) -> None:
        """Reads the script if it has changed. Raises DeviceError if it cannot be read."""
        path = self._folder / "script.json" if self._folder else None
        if path is None or not path.exists() or path.stat().st_mtime_ns == self._script_is_of_ns:
            return
        try:
            script = msgspec.json.decode(path.read_bytes(), type=dict[str, Behaviour])
        except UNREADABLE as error:
            raise DeviceError(BROKEN, f"script {path}: {error}") from error
        self._script_is_of_ns = path.stat().st_mtime_ns
        now_s = self._clock()
        found = {uuid: script.get(uuid, script.get(ALL_DEVICES, Behaviour())) for uuid in self._devices}
        self._blind = frozenset(uuid for uuid, behaviour in found.items() if behaviour.blind)
        for uuid, behaviour in found.items():
            _behave(self._devices[uuid], behaviour, now_s)


def _behave(device: FakeDevice, behaviour: Behaviour, now_s: float) -> None:
    wants_w = behaviour.wants_w
    device.wants_w = lambda _: wants_w
    device.refuses, device.lies, device.stuck = behaviour.refuses, behaviour.lies, behaviour.stuck
    device.clamps_to_w, device.frozen_draw_w = behaviour.clamps_to_w, behaviour.frozen_draw_w
    device.brake_w = behaviour.brake_w
    device.silent_from_s = now_s if behaviour.silent else None
    device.lost_from_s = now_s if behaviour.lost else None
