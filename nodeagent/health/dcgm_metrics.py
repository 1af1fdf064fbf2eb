"""Metrics of DCGM that say something about the health of a GPU: their names, and from when on they are evidence."""

from collections.abc import Mapping
from dataclasses import dataclass

LAST_XID = "DCGM_FI_DEV_XID_ERRORS"
"""The last GPU error since the exporter or its host engine started, without an instant."""
XIDS = frozenset({LAST_XID, "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL"})
"""The other two, off by default, count errors by number: those of the last minutes, and all since the start."""
REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
"""Bits as NVML's."""
REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
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
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": Rise("UncorrectedErrors", 1, "rows remapped for uncorrected errors"),
    "DCGM_FI_DEV_THERMAL_VIOLATION": Rise("ThermalThrottle", 1, "time for which heat held clocks down"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": Rise("PcieError", 9, "PCIe retries"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": Rise("NvlinkErrors", 6000, "CRC errors of NVLink"),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": Rise("NvlinkErrors", 6000, "CRC errors of NVLink"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": Rise("NvlinkErrors", 1, "recoveries of NVLink"),
}
"""Source of the least: DCGM's own health checks (dcgm_gpu_hardware_limits.h, DcgmHealthWatch.cpp): more than 8 retries
a minute, 100 CRC errors a second, any recovery."""

NAMES: Mapping[str, str] = {
    **{name: name for name in (*XIDS, *RISES, REASONS, REMAP_FAILURE, PRESENT)},
    "DCGM_FI_DEV_XID_ERROR": LAST_XID,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": REASONS,
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
