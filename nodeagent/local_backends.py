"""Device back ends in this process: which one a node's settings ask for, and how it is opened."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

import msgspec

from cluster.errors import ConfigError, Mistake
from nodeagent.bmc import READ_S, TELL_S, Bmc, BmcAccess
from nodeagent.out_of_band import OutOfBand, Sparing
from nodeagent.scripted_devices import ScriptedDevices
from power.devices.amd_smi import AmdSmi
from power.devices.backend import Backend
from power.devices.nvml import Nvml
from power.devices.redfish import Redfish


@dataclass(frozen=True, slots=True)
class RedfishAbout:
    """What the child is told of a BMC."""

    access: BmcAccess
    sparing: Sparing


@dataclass(frozen=True, slots=True)
class PretendAbout:
    """What the child is told of pretend devices."""

    node: str
    devices: int
    folder: Path | None = None


About = RedfishAbout | PretendAbout | None


def _redfish(about: str) -> Backend:
    told = msgspec.json.decode(about, type=RedfishAbout, dec_hook=_path)
    reads, tells = Bmc(told.access, READ_S), Bmc(told.access, TELL_S)
    made = OutOfBand(Redfish(reads, time.monotonic, tells), time.monotonic, SystemRandom(), told.sparing)
    made.start()
    return made


def _pretend(about: str) -> Backend:
    told = msgspec.json.decode(about, type=PretendAbout, dec_hook=_path)
    return ScriptedDevices(told.node, told.devices, time.monotonic, told.folder)


LOCAL: Mapping[str, Callable[[str], Backend]] = {
    "nvml": lambda _: Nvml(time.monotonic),
    "amdsmi": lambda _: AmdSmi(time.monotonic),
    "redfish": _redfish,
    "pretend": _pretend,
}
"""By name, made from what is told about them: the vendors' libraries, a BMC, and what is only pretended."""


def local_backend(name: str, about: str = "") -> Backend:
    """In this process. Raises ConfigError for an unknown name, DeviceError when its library is not here."""
    if name not in LOCAL:
        raise ConfigError(Mistake(f"backend {name!r}", "there is none of that name", f"choose of {', '.join(LOCAL)}"))
    return LOCAL[name](about)


def _path(kind: type, value: object) -> object:
    """msgspec knows no paths."""
    return Path(str(value)) if kind is Path else value
