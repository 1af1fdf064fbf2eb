"""What a finding of a node's agent means: how severe it is, from which source, and what it says about ranks."""

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from re import compile as pattern

from health.records.frames import Evidence, Source
from health.verdicts.verdict import FactKind

LONGEST_CODE = 64
"""Most characters of a finding's code."""


class Severity(StrEnum):
    """What a finding asks for by itself, without a job that suffers."""

    NONE = "None"
    """Nothing: a program's mistake, or a fault that was mended as it happened."""
    WATCH = "Watch"
    """Nothing yet: it stands beside whatever else accuses the node."""
    AFTER_JOB = "AfterJob"
    """The node is taken out once the job on it has ended: the job can go on, the next one should not begin there."""
    NOW = "Now"
    """The node is taken out."""


_CATALOG = "NVIDIA, Xid catalog of driver 580, immediate resolution"
_NVLINK5 = "NVIDIA, Xid catalog, decode of 144 to 150: the line's own word decides, fatal: reset"
_FABRIC = "NVIDIA, Fabric Manager guide, SXid errors: the line's own word decides"
_RECOVERY = "NVIDIA, NVML, nvmlDeviceGpuRecoveryAction_t"
_DCGM = "NVIDIA, DCGM, dcgm_errors.h with NVSentinel's mapping to actions"
_AMD = "Linux, drivers/gpu/drm/amd, amdgpu_ras.c and amdgpu_device.c"
_MCE = "Intel SDM 3B, 16.3.2.2, and AMD PPR, MCA_STATUS: PCC and UC"
_APEI = "ACPI, 18.3.2.7, error severity"
_EDAC = "Linux, Documentation/driver-api/edac, UE and CE"
_AER = "Linux, Documentation/PCI/pcieaer-howto"
_NIC = "Linux, drivers/net/ethernet: mlx5 health.c and events.c, bnxt.c, ice, i40e"
_KERNEL = "Linux, kernel/watchdog.c and kernel/hung_task.c"
_HOST = "chosen: errors that rise concern a job that suffers, not the node by itself"


def _xids(numbers: str) -> str:
    return " ".join(f"Xid{number}" for number in numbers.split())


ROWS: tuple[tuple[Severity, str, str], ...] = (
    # Restart the program, or ignore.
    (Severity.NONE, _xids("8 11 13 14 25 31 32 37 39 40 41 43 44 45 60 66 67 68 69 70 71 72 75 76 77 80 82"), _CATALOG),
    (Severity.NONE, _xids("83 84 85 86 88 89 96 97 98 99 100 101 102 103 104 105 106 107 126 127 128 129"), _CATALOG),
    (Severity.NONE, _xids("130 131 132 133 134 135 139 141 152 153 159 162 163"), _CATALOG),
    # Recorded, contained or worn: work goes on. What NVIDIA calls unused or sends to its support is watched as well.
    (Severity.WATCH, _xids("38 61 63 78 92 93 94 108 121 137 142 151 154 157 160 161 164 165 166 168 170"), _CATALOG),
    (Severity.AFTER_JOB, _xids("48 54 156 171 172"), _CATALOG),
    (Severity.NOW, _xids("46 62 64 74 79 95 109 110 119 120 136 140 143 155 158 167 169"), _CATALOG),
    (Severity.WATCH, "Xid74Nonfatal", _CATALOG),
    # DCGM tells the number without the line: whether it was fatal is looked at when no job is in the way.
    (Severity.AFTER_JOB, _xids("144 145 146 147 148 149 150"), _NVLINK5),
    (Severity.NOW, "XidFatal", _NVLINK5),
    (Severity.WATCH, "XidNonfatal", _NVLINK5),
    (Severity.NOW, "SXidFatal", _FABRIC),
    (Severity.WATCH, "SXidNonfatal SXid", _FABRIC),
    (Severity.NONE, "Xid154None", _RECOVERY),
    (Severity.AFTER_JOB, "Xid154DrainPeers Xid154DrainAndReset Xid154Other", _RECOVERY),
    (Severity.NOW, "Xid154Reset Xid154Reboot", _RECOVERY),
    (Severity.NOW, "GpuLost", "NVIDIA, open-gpu-kernel-modules, osinit.c: the driver cannot reach or start the GPU"),
    (Severity.WATCH, "RowsRemapped RowRemapPending NvlinkErrors ThermalThrottle", _DCGM),
    (Severity.AFTER_JOB, "UncorrectedErrors PowerBrake", _DCGM),
    (Severity.NOW, "RowRemapFailure", _DCGM),
    (Severity.NONE, "RasCorrected GpuResetDone", _AMD),
    (Severity.WATCH, "RasContained GpuReset GpuTimeout", _AMD),
    (Severity.AFTER_JOB, "RasUncorrected", _AMD),
    (Severity.NOW, "RasFatal GpuResetFailed", _AMD),
    (Severity.WATCH, "MachineCheckLogged MachineCheckDeferred", _MCE),
    (Severity.AFTER_JOB, "MachineCheckUncorrected", _MCE),
    (Severity.NOW, "MachineCheck", _MCE),
    (Severity.NONE, "HardwareErrorCorrected HardwareErrorInfo", _APEI),
    (Severity.AFTER_JOB, "HardwareErrorRecoverable", _APEI),
    (Severity.NOW, "HardwareErrorFatal", _APEI),
    (Severity.WATCH, "MemoryPageLost", "Linux, mm/memory-failure.c: the page is out of use, its process ended"),
    (Severity.AFTER_JOB, "MemoryError MemoryPageInUse", _EDAC),
    (Severity.NONE, "PcieRecovered", _AER),
    (Severity.WATCH, "PcieError PcieNonfatal PcieLinkDown", _AER),
    (Severity.AFTER_JOB, "PcieUnrecovered", _AER),
    (Severity.NOW, "PcieFatal", _AER),
    (Severity.NONE, "NicLinkUp NicRecovered", _NIC),
    (Severity.WATCH, "NicLinkDown NicTimeout NicModule NicHeat", _NIC),
    (Severity.NOW, "NicDead", _NIC),
    (Severity.WATCH, "SoftLockup HungTask", _KERNEL),
    (Severity.WATCH, "NicErrors", _HOST),
    (Severity.NOW, "LinkDown", "sysfs: a port that was in use is down"),
    (Severity.NONE, "Gone Stopped Throttled RankLost RankBehind", "of a job's process, and no fault of the node"),
)  # fmt: skip
"""Severity, codes and source. A code ends with the line's own word where that decides; without a row for the number,
`XidFatal` and the like stand for all of them."""
TABLE: Mapping[str, tuple[Severity, str]] = {
    code: (severity, source) for severity, codes, source in ROWS for code in codes.split()
}
_GPU_ERROR = pattern(r"(S?Xid)([0-9]{1,6})([A-Z][A-Za-z]*)?")
_FACTS: Mapping[str, FactKind] = {
    "Gone": FactKind.PROCESS_GONE,
    "Stopped": FactKind.PROCESS_STOPPED,
    "Throttled": FactKind.CGROUP_LIMIT,
    **dict.fromkeys(("NicErrors", "LinkDown", "NicLinkDown", "NicDead"), FactKind.NIC_ERRORS),
}


def _rows_for(code: str) -> Iterator[str]:
    """Rows that speak of a code, the closest first."""
    yield code
    if found := _GPU_ERROR.fullmatch(code):
        family, number, word = found[1], found[2], found[3] or ""
        yield from (f"{family}{word}",) * (word != "")
        yield from (f"{family}{number}", family)


def severity_of(code: str, chosen: Mapping[str, Severity] | None = None) -> Severity:
    """What a finding asks for. A code that no rule knows is watched.

    chosen: an operator's own, before the table; one for a number stands for all its words.
    """
    found = _GPU_ERROR.fullmatch(code)
    for row in (code, f"{found[1]}{found[2]}") if found and chosen else (code,):
        if chosen and row in chosen:
            return chosen[row]
    return next((TABLE[row][0] for row in _rows_for(code) if row in TABLE), Severity.WATCH)


def is_hardware(found: Evidence, chosen: Mapping[str, Severity] | None = None) -> bool:
    """Whether a finding of an agent suspects its node without a job that suffers."""
    return severity_of(found.code, chosen) in (Severity.AFTER_JOB, Severity.NOW)


def fact_kind_of(code: str) -> FactKind | None:
    """Kind of the fact about ranks that a finding of this code states; None: it states none."""
    if code in _FACTS:
        return _FACTS[code]
    is_xid = code.startswith("Xid") and severity_of(code) in (Severity.AFTER_JOB, Severity.NOW)
    return FactKind.XID if is_xid else None


def is_instant(found: Evidence) -> bool:
    """Whether a finding happened once, as messages of the kernel and GPU errors do; others stand while reported."""
    # Digits of other scripts, and thousands of digits, are no number to int().
    code = found.code
    is_xid = code.startswith("Xid") and code[3:].isdigit() and code.isascii() and len(code) < 10
    return found.source is Source.KERNEL or is_xid


def is_plausible(found: Evidence) -> bool:
    """Whether an agent may have found this. What cannot be would break the analysis for all others."""
    return math.isfinite(found.age_s) and math.isfinite(found.speed_share) and len(found.code) <= LONGEST_CODE
