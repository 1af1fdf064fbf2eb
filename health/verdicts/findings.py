"""What a finding of a node's agent means: which errors are the hardware's, and what they say about ranks."""

import math
from collections.abc import Mapping

from health.records.frames import Evidence, Source
from health.verdicts.verdict import FactKind

LONGEST_CODE = 64
"""Most characters of a finding's code."""
HARDWARE_XIDS = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156})
"""GPU errors that are the hardware's or the driver's. Those that a program can cause (13, 31, 43, 45) are evidence of
nothing by themselves. Source: NVIDIA, "XID Errors", table of causes."""
_HARDWARE_CODES = frozenset(f"Xid{number}" for number in HARDWARE_XIDS)
NODE_FAULTS = frozenset(
    {"MachineCheck", "MemoryError", "GpuLost", "LinkDown", "UncorrectedErrors", "RowRemapFailure", "PowerBrake"}
)
"""Other findings of agents for which a node is suspected without a job that suffers."""
_FACTS: Mapping[str, FactKind] = {
    "Gone": FactKind.PROCESS_GONE,
    "Stopped": FactKind.PROCESS_STOPPED,
    "Throttled": FactKind.CGROUP_LIMIT,
    "NicErrors": FactKind.NIC_ERRORS,
    "LinkDown": FactKind.NIC_ERRORS,
    **dict.fromkeys(_HARDWARE_CODES, FactKind.XID),
}


def fact_kind_of(code: str) -> FactKind | None:
    """Kind of the fact about ranks that a finding of this code states; None: it states none."""
    return _FACTS.get(code)


def is_hardware(found: Evidence) -> bool:
    """Whether a finding of an agent suspects its node without a job that suffers."""
    return found.code in _HARDWARE_CODES or found.code.startswith("SXid") or found.code in NODE_FAULTS


def is_instant(found: Evidence) -> bool:
    """Whether a finding happened once, as messages of the kernel and GPU errors do; others stand while reported."""
    # Digits of other scripts, and thousands of digits, are no number to int().
    code = found.code
    is_xid = code.startswith("Xid") and code[3:].isdigit() and code.isascii() and len(code) < 10
    return found.source is Source.KERNEL or is_xid


def is_plausible(found: Evidence) -> bool:
    """Whether an agent may have found this. What cannot be would break the analysis for all others."""
    return math.isfinite(found.age_s) and math.isfinite(found.speed_share) and len(found.code) <= LONGEST_CODE
