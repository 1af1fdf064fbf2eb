"""Scripted fake devices, for trying Tonnage without GPUs: files define what they do and record the limits set on them.

In `folder`: `script.json` defines how devices behave and is read again whenever it changes. `limits.json` holds the
limits that they enforce, so that these outlive the process as on real devices. `orders.jsonl` has a line for every
limit that was set, with the machine's monotonic clock.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from cluster.errors import UNREADABLE
from power.devices.backend import BROKEN, DeviceError, DeviceFacts, DeviceReading
from power.devices.fake_devices import FakeDevice, FakeDevices

ALL_DEVICES = "*"


class Behaviour(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Behaviour of a device from now on. See power.devices.fake_devices.PretendDevice."""

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
