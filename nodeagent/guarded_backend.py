"""Back end of this node's devices, guarded by a process of its own."""

import sys
from collections.abc import Callable

import msgspec

from nodeagent.device_process import CALL_S, START_S, DeviceProcess
from nodeagent.local_backends import BackendArguments

BMC_START_S = 90.0
"""Time limit for searching a BMC: three requests of 0.3 s for each of 16 processors, at five times the usual
duration."""


def guarded_backend(name: str, clock: Callable[[], float], arguments: BackendArguments = None) -> DeviceProcess:
    """Back end in a separate process, so that no call takes longer than its time limit. clock: the one for its
    readings.
    """
    encoded = () if arguments is None else (msgspec.json.encode(arguments, enc_hook=str).decode(),)
    start_s = BMC_START_S if name == "redfish" else START_S
    command = (sys.executable, "-m", "nodeagent.device_process", name, *encoded)
    return DeviceProcess(command, clock, CALL_S, start_s, renews=name in ("nvml", "amdsmi"))
