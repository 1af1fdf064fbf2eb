"""Which back end speaks for this node's devices."""

import sys
from collections.abc import Callable

import msgspec

from nodeagent.device_process import CALL_S, START_S, DeviceProcess
from nodeagent.local_backends import About

BMC_START_S = 90.0
"""For looking a BMC through: three requests of 0.3 s for each of 16 processors, on a bad day five times as slow."""


def guarded_backend(name: str, clock: Callable[[], float], about: About = None) -> DeviceProcess:
    """In a process of its own, so that no call takes longer than its time limit. clock: what readings are to carry."""
    told = () if about is None else (msgspec.json.encode(about, enc_hook=str).decode(),)
    start_s = BMC_START_S if name == "redfish" else START_S
    return DeviceProcess((sys.executable, "-m", "nodeagent.device_process", name, *told), clock, CALL_S, start_s)
