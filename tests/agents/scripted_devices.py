"""Simulated devices of an agent's process, which a script may misguide: a fake of its `pretend` back end."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cluster.errors import UNREADABLE
from power.devices.backend import BROKEN, LOST, REFUSED, SILENT, DeviceError, DeviceFacts, DeviceReading

ALL_DEVICES = "*"
LEAST_W, MOST_W, IDLE_W = 200.0, 700.0, 70.0
LOWEST_MHZ, HIGHEST_MHZ = 210.0, 1980.0
OVERSHOOT_SHARE = 0.03
"""Fraction by which the draw may exceed the limit, since limiters react late."""


class Behaviour(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Behaviour of a device from now on."""

    wants_w: float = 600.0
    """Draw of its work without a limit."""
    refuses: bool = False
    lies: bool = False
    """Whether it reports the requested limit while enforcing the old one."""
    stuck: bool = False
    """Whether it accepts a new limit but keeps reporting and enforcing the old one."""
    silent: bool = False
    """Whether neither readings nor orders get an answer."""
    blind: bool = False
    """Whether readings get no answer while orders do."""
    lost: bool = False
    clamps_to_w: tuple[float, float] | None = None
    """Range to which any requested value is clamped without an error (seen on an H100 with 200 W)."""
    frozen_draw_w: float | None = None
    """Draw that it reports, whatever it draws."""
    brake_w: float | None = None
    """Draw that an engaged hardware brake allows, whatever the limit."""


@dataclass(slots=True)
class ScriptedDevice:
    """State of one device."""

    uuid: str
    behaviour: Behaviour = field(default_factory=Behaviour)
    enforced_w: float = MOST_W
    reported_w: float = MOST_W
    locked_mhz: float | None = None
    """Clock that it is locked to. Its draw does not depend on it."""
    energy_j: float = 0.0
    metered_s: float | None = None

    def set_limit(self, limit_w: float) -> float:
        """Sets a limit as its behaviour has it; returns the one that it reports. Raises DeviceError."""
        self._check()
        does = self.behaviour
        if does.refuses or (does.clamps_to_w is None and not LEAST_W <= limit_w <= MOST_W):
            raise DeviceError(REFUSED, f"{limit_w:g} W is not in {LEAST_W:g}..{MOST_W:g} W")
        low, high = does.clamps_to_w or (LEAST_W, MOST_W)
        if not (does.lies or does.stuck):
            self.enforced_w = min(max(limit_w, low), high)
        self.reported_w = limit_w if does.lies else self.enforced_w
        return self.reported_w

    def read(self, now_s: float) -> DeviceReading:
        """A reading, as far as its behaviour allows. Raises DeviceError."""
        self._check()
        does = self.behaviour
        if does.blind:
            raise DeviceError(SILENT, "its script makes it unreadable")
        limited_w = min(does.wants_w, self.enforced_w * (1 + OVERSHOOT_SHARE))
        draw_w = max(IDLE_W, limited_w if does.brake_w is None else min(limited_w, does.brake_w))
        if self.metered_s is not None:
            self.energy_j += draw_w * (now_s - self.metered_s)
        self.metered_s = now_s
        capped = ("power_cap",) if does.wants_w > self.enforced_w else ()
        return DeviceReading(
            uuid=self.uuid,
            at_s=now_s,
            draw_w=draw_w if does.frozen_draw_w is None else does.frozen_draw_w,
            limit_w=self.reported_w,
            requested_w=self.reported_w,
            energy_j=self.energy_j,
            busy_share=0.0 if draw_w <= IDLE_W else 1.0,
            sm_clock_mhz=HIGHEST_MHZ if self.locked_mhz is None else self.locked_mhz,
            throttled_by=capped if does.brake_w is None else (*capped, "hw_slowdown", "power_brake"),
        )

    def _check(self) -> None:
        if self.behaviour.lost:
            raise DeviceError(LOST, f"{self.uuid} is not on the bus")
        if self.behaviour.silent:
            raise DeviceError(SILENT, f"{self.uuid} does not answer")


class ScriptedDevices:
    """`count` devices, named after their node.

    folder: of their script, `script.json`, and of the files with their limits and orders, which outlive the process.
    """

    def __init__(self, node: str, count: int, clock: Callable[[], float], folder: Path) -> None:
        self._clock, self._folder = clock, folder
        names = [f"pretend-{node}-{number}" for number in range(count)]
        self._devices = {uuid: ScriptedDevice(uuid) for uuid in names}
        self._script_is_of_ns = -1
        with suppress(FileNotFoundError):
            kept = msgspec.json.decode((folder / "limits.json").read_bytes(), type=dict[str, float])
            for uuid in kept.keys() & self._devices.keys():
                self._devices[uuid].set_limit(kept[uuid])

    def discover(self) -> tuple[DeviceFacts, ...]:
        self._follow()
        limits_w, clocks_mhz = (LEAST_W, MOST_W, MOST_W), (LOWEST_MHZ, HIGHEST_MHZ)
        return tuple(
            DeviceFacts(uuid, "Pretend H100", "pretend", *limits_w, can_limit=True, clocks_mhz=clocks_mhz)
            for uuid in self._devices
        )

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        self._follow()
        now_s, found = self._clock(), dict[str, DeviceReading | DeviceError]()
        for uuid, device in self._devices.items():
            try:
                found[uuid] = device.read(now_s)
            except DeviceError as error:
                found[uuid] = error
        return found

    def set_limit(self, uuid: str, limit_w: float) -> float:
        self._follow()
        reported_w = self._device(uuid).set_limit(limit_w)
        scratch = self._folder / ".limits.json.new"
        limits_w = {name: device.enforced_w for name, device in self._devices.items()}
        scratch.write_text(json.dumps(limits_w), encoding="utf-8")
        scratch.replace(self._folder / "limits.json")
        line = json.dumps({"at_s": self._clock(), "uuid": uuid, "limit_w": reported_w})
        with (self._folder / "orders.jsonl").open("a", encoding="utf-8") as orders:
            orders.write(line + "\n")
        return reported_w

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        self._device(uuid).locked_mhz = max_mhz

    def close(self) -> None:
        """Nothing is open."""

    def _device(self, uuid: str) -> ScriptedDevice:
        if uuid not in self._devices:
            raise DeviceError(LOST, f"{uuid} is not here")
        return self._devices[uuid]

    def _follow(self) -> None:
        """Reads the script if it has changed. Raises DeviceError if it cannot be read."""
        path = self._folder / "script.json"
        if not path.exists() or path.stat().st_mtime_ns == self._script_is_of_ns:
            return
        try:
            script = msgspec.json.decode(path.read_bytes(), type=dict[str, Behaviour])
        except UNREADABLE as error:
            raise DeviceError(BROKEN, f"script {path}: {error}") from error
        self._script_is_of_ns = path.stat().st_mtime_ns
        for uuid, device in self._devices.items():
            device.behaviour = script.get(uuid, script.get(ALL_DEVICES, Behaviour()))
