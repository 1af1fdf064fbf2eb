"""Device back ends in this process: the one that a node's settings name, and how it is opened."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

import msgspec

from cluster.errors import ConfigError, Mistake
from nodeagent.bmc import READ_S, SET_S, Bmc, BmcAccess
from nodeagent.out_of_band import BmcPacing, OutOfBand
from nodeagent.pretend_devices import PretendDevices
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


BACKENDS = ("nvml", "amdsmi", "redfish", "pretend", "none")


def local_backend(name: str, arguments: str = "") -> Backend:
    """The back end in this process, from its encoded arguments.

    Raises ConfigError for an unknown name, DeviceError when its library is missing.
    """
    clock = time.monotonic
    match name:
        case "nvml":
            return Nvml(clock)
        case "amdsmi":
            return AmdSmi(clock)
        case "none":
            return NoDevices()
        case "pretend":
            pretend = msgspec.json.decode(arguments, type=PretendArguments, dec_hook=_path)
            return PretendDevices(pretend.node, pretend.devices, clock, pretend.folder)
        case "redfish":
            bmc = msgspec.json.decode(arguments, type=RedfishArguments, dec_hook=_path)
            devices = Redfish(Bmc(bmc.access, READ_S), clock, Bmc(bmc.access, SET_S))
            made = OutOfBand(devices, clock, SystemRandom(), bmc.pacing)
            made.start()
            return made
        case _:
            raise ConfigError(Mistake(f"backend {name!r}", "is unknown", f"choose one of {', '.join(BACKENDS)}"))


def _path(kind: type, value: object) -> object:
    """Decodes paths, which msgspec does not support."""
    return Path(str(value)) if kind is Path else value
