"""Device back ends in this process: the one that a node's settings name, and how it is opened."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

import msgspec

from cluster.errors import ConfigError, Mistake
from nodeagent.bmc import READ_S, TELL_S, Bmc, BmcAccess
from nodeagent.out_of_band import BmcPacing, OutOfBand
from nodeagent.scripted_devices import ScriptedDevices
from power.devices.amd_smi import AmdSmi
from power.devices.backend import REFUSED, Backend, DeviceError, DeviceFacts, DeviceReading
from power.devices.nvml import Nvml
from power.devices.redfish import Redfish


class NoDevices:
    """Implements `Backend`: there is nothing to read or to limit."""

    def discover(self) -> tuple[DeviceFacts, ...]:
        return ()

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        return {}

    def set_limit(self, uuid: str, limit_w: float) -> float:
        raise DeviceError(REFUSED, f"{uuid} at {limit_w:g} W: this node has no devices (backend none)")

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        raise DeviceError(REFUSED, f"{uuid} at {max_mhz} MHz: this node has no devices (backend none)")

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class RedfishArguments:
    """Arguments of the child process for a BMC."""

    access: BmcAccess
    pacing: BmcPacing


@dataclass(frozen=True, slots=True)
class PretendArguments:
    """Arguments of the child process for fake devices."""

    node: str
    devices: int
    folder: Path | None = None


BackendArguments = RedfishArguments | PretendArguments | None


def _redfish(arguments: str) -> Backend:
    decoded = msgspec.json.decode(arguments, type=RedfishArguments, dec_hook=_path)
    reads, sets = Bmc(decoded.access, READ_S), Bmc(decoded.access, TELL_S)
    made = OutOfBand(Redfish(reads, time.monotonic, sets), time.monotonic, SystemRandom(), decoded.pacing)
    made.start()
    return made


def _pretend(arguments: str) -> Backend:
    decoded = msgspec.json.decode(arguments, type=PretendArguments, dec_hook=_path)
    return ScriptedDevices(decoded.node, decoded.devices, time.monotonic, decoded.folder)


LOCAL: Mapping[str, Callable[[str], Backend]] = {
    "nvml": lambda _: Nvml(time.monotonic),
    "amdsmi": lambda _: AmdSmi(time.monotonic),
    "redfish": _redfish,
    "pretend": _pretend,
    "none": lambda _: NoDevices(),
}
"""Constructors by name, from encoded arguments: the vendors' libraries, a BMC, and fake devices."""


def local_backend(name: str, arguments: str = "") -> Backend:
    """The back end in this process. Raises ConfigError for an unknown name, DeviceError when its library is missing."""
    if name not in LOCAL:
        raise ConfigError(Mistake(f"backend {name!r}", "is unknown", f"choose one of {', '.join(LOCAL)}"))
    return LOCAL[name](arguments)


def _path(kind: type, value: object) -> object:
    """Decodes paths, which msgspec does not support."""
    return Path(str(value)) if kind is Path else value
