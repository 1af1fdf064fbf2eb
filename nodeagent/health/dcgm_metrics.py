"""Metrics of DCGM that say something about the health of a GPU: their names, and from when on they are evidence."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from nodeagent.health.kernel_messages import ACTIONS

LAST_XID = "DCGM_FI_DEV_XID_ERRORS"
"""The last GPU error since the exporter or its host engine started, without an instant."""
XIDS = frozenset({LAST_XID, "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL"})
"""The other two, off by default, count errors by number: those of the last minutes, and all since the start."""
CLOCK_REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
"""Bits as NVML's."""
REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
STATES: Mapping[str, Mapping[int, tuple[str, str]]] = {
    REMAP_FAILURE: {1: ("RowRemapFailure", "memory rows can no longer be remapped; the GPU is to be replaced")},
    "DCGM_FI_DEV_ROW_REMAP_PENDING": {1: ("RowRemapPending", "memory rows are remapped at the GPU's next reset")},
    "DCGM_FI_DEV_GPU_RECOVERY_ACTION": {
        number: (f"Xid154{word}", f"the driver asks for {word}") for number, word in ACTIONS.items() if number
    },
}
"""What a value of a gauge states, and in which words; a higher one than all counts as the highest."""
PRESENT = "DCGM_FI_DEV_GPU_TEMP"
"""Says that a GPU is there: one without any error may have no line about errors."""


@dataclass(frozen=True, slots=True)
class Rise:
    """From when on a counter is evidence of what."""

    code: str
    least: int
    """Rise within a minute."""
    words: str


RISES: Mapping[str, Rise] = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Rise("UncorrectedErrors", 1, "uncorrected memory errors"),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": Rise("UncorrectedErrors", 1, "uncorrected memory errors"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": Rise("RowsRemapped", 1, "rows remapped for uncorrected errors"),
    "DCGM_FI_DEV_THERMAL_VIOLATION": Rise("ThermalThrottle", 1, "time for which heat held clocks down"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": Rise("PcieError", 9, "PCIe retries"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": Rise("NvlinkErrors", 6000, "CRC errors of NVLink"),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": Rise("NvlinkErrors", 6000, "CRC errors of NVLink"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": Rise("NvlinkErrors", 1, "recoveries of NVLink"),
}
"""Source of the least: DCGM's own health checks (dcgm_gpu_hardware_limits.h, DcgmHealthWatch.cpp): more than 8 retries
a minute, 100 CRC errors a second, any recovery."""

NAMES: Mapping[str, str] = {
    **{name: name for name in (*XIDS, *RISES, *STATES, CLOCK_REASONS, PRESENT)},
    "DCGM_FI_DEV_XID_ERROR": LAST_XID,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": CLOCK_REASONS,
    "DCGM_FI_DEV_ROW_REMAP_FAILED": REMAP_FAILURE,
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": PRESENT,
}
"""The name used here by the exporter's. Source: etc/default-counters.csv of dcgm-exporter, and dcgm_fields.py of
DCGM 4.7, whose names it has had since 4.9.0; reasons were called so before DCGM 3.3."""


LONGEST_LINE = 8192
"""Characters of a line that is read: with all labels of a pod on it. The parser's time grows with their square."""
MOST_LINES = 4096
"""Lines about health that are read: a dozen for each of 64 instances of GPUs, five times over."""
_METRIC = re.compile(r"[A-Z0-9_]+(?=[{ \t])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,79}")
_BUS = re.compile(r"(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?")


@dataclass(frozen=True, slots=True)
class DcgmSample:
    """One value of one GPU."""

    metric: str
    """Name in `dcgm_metrics`, whatever the release."""
    gpu: str
    """Its UUID; the name of its device where the exporter does not tell UUIDs."""
    value: float
    part: str = "0"
    """Number of a GPU error or of a link, where the value is of one; 0 also for none."""
    bus: str = ""
    """PCI address as the kernel writes it, `0000:3b:00`; empty where the exporter does not tell it."""
    host: str = ""
    """Node as the exporter calls it; empty where it does not."""


def samples_in(text: str) -> tuple[tuple[DcgmSample, ...], int]:
    """Samples about health, and how many lines about it could not be read. Other metrics are not looked at.

    There is none of a switch, of a GPU without a name, or of a value that is blank.
    """
    found: list[DcgmSample] = []
    lines = unread = 0
    for line in text.split("\n"):
        metric = NAMES.get(named[0]) if (named := _METRIC.match(line)) else None
        if metric is None:
            continue
        lines += 1
        if len(line) > LONGEST_LINE or lines > MOST_LINES:
            unread += 1
            continue
        try:
            # Each line alone, so that a mistake in it spoils no other.
            ((parsed,),) = (family.samples for family in text_string_to_metric_families(line))
            sample = _sample(metric, parsed.labels, float(parsed.value))
        except (ValueError, LookupError, ArithmeticError):  # the parser's own, for all kinds of nonsense
            unread += 1
        else:
            found += [sample] if sample is not None else []
    return tuple(found), unread


def _sample(metric: str, labels: Mapping[str, str], value: float) -> DcgmSample | None:
    gpu = _name(labels, "UUID", "uuid", "gpu_uuid") or _name(labels, "device", "gpu")
    # DCGM writes numbers for "no value", "not supported" and the like, which exporters pass on: the README of
    # dcgm-exporter shows 9223372036854775794 degrees. Source: DCGM_BLANK_VALUES, dcgm_structs.h: 16 values from each
    # base on.
    is_blank = 0x7FFFFFF0 <= value <= 0x7FFFFFFF or 2**47 <= value < 2**47 + 16 or value >= 2**62
    if not gpu or not math.isfinite(value) or value < 0 or is_blank:
        return None
    part = _name(labels, "xid" if metric in XIDS else "nvlink") or "0"
    if metric == LAST_XID:
        part, value = f"{value:g}", 1.0
    if not (part.isdecimal() and len(part) <= 4):
        raise ValueError(part)
    on_bus = _BUS.fullmatch(labels.get("pci_bus_id", "").lower())
    return DcgmSample(metric, gpu, value, part, on_bus[1] if on_bus else "", _name(labels, "Hostname", "hostname"))


def _name(labels: Mapping[str, str], *of: str) -> str:
    """The first of these labels that there is, where it may stand in a status; else nothing."""
    found = next((labels[each] for each in of if labels.get(each)), "")
    return found if _NAME.fullmatch(found) else ""
