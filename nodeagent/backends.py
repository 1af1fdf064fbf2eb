"""Which back end speaks for this node's devices."""

import sys
import time
from collections.abc import Callable, Mapping

from cluster.errors import ConfigError, Mistake
from nodeagent.device_process import DeviceProcess
from power.amd_smi import AmdSmi
from power.devices import Backend
from power.nvml import Nvml

LOCAL: Mapping[str, Callable[[], Backend]] = {
    "nvml": lambda: Nvml(time.monotonic),
    "amdsmi": lambda: AmdSmi(time.monotonic),
}
"""By name: the vendors' libraries, which talk to the driver of this machine."""


def local_backend(name: str) -> Backend:
    """In this process. Raises ConfigError for an unknown name, DeviceError when its library is not here."""
    if name not in LOCAL:
        raise ConfigError(Mistake(f"backend {name!r}", "there is none of that name", f"choose of {', '.join(LOCAL)}"))
    return LOCAL[name]()


def guarded_backend(name: str) -> DeviceProcess:
    """In a process of its own, so that no call takes longer than its time limit."""
    return DeviceProcess((sys.executable, "-m", "nodeagent.device_process", name))
