"""A library that behaves like `pynvml` on a machine with some GPUs: same names, same units, same errors."""

# ruff: noqa: N802 - the names are those of the library

from collections.abc import Callable, Sequence
from ctypes import Structure, c_uint
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

CODES = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_NOT_FOUND": 6,
    "NVML_ERROR_INVALID_ARGUMENT": 2,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_TIMEOUT": 10,
}


PROFILES = {
    "NVML_POWER_PROFILE_MAX_P": 0,
    "NVML_POWER_PROFILE_MAX_Q": 1,
    "NVML_POWER_PROFILE_LLM_INFERENCE": 6,
    "NVML_POWER_PROFILE_OPERATION_CLEAR": 0,
}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__(f"code {value}")


@dataclass
class Gpu:
    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    limit_mw: int = 700_000
    least_mw: int = 200_000
    most_mw: int = 700_000
    draw_mw: int = 350_000
    reasons: int | None = 0
    """Bits of what holds its clocks down; None: the driver does not report it."""
    is_lost: bool = False
    has_range: bool = True
    locked: tuple[int, int] | None = None
    is_persistent: bool = True
    fields: dict[tuple[int, int], int] | None = None
    """Values by field and scope; None: its driver knows no power smoothing."""
    requested: set[int] = field(default_factory=set)
    """Workload power profiles that anybody requested; None of them is enforced beside one that it conflicts with and
    that has a higher priority (a lower number)."""
    conflicts: dict[int, set[int]] = field(default_factory=dict)


class Mask255(Structure):
    _fields_ = (("mask", c_uint * 8),)


class CurrentProfiles(Structure):
    """As published in nvml.h."""

    _fields_ = (
        ("version", c_uint),
        ("perfProfilesMask", Mask255),
        ("requestedProfilesMask", Mask255),
        ("enforcedProfilesMask", Mask255),
    )


class FakeNvml:
    """Replacement of `pynvml`."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_FI_PWR_SMOOTHING_ENABLED = 251
    NVML_FI_PWR_SMOOTHING_PROFILE_RAMP_UP_RATE = 261
    NVML_FI_PWR_SMOOTHING_ACTIVE_PRESET_PROFILE = 264
    NVML_FI_PWR_SMOOTHING_ADMIN_OVERRIDE_RAMP_UP_RATE = 266
    NVML_POWER_SMOOTHING_ADMIN_OVERRIDE_NOT_SET = 0xFFFFFFFF
    c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t = CurrentProfiles  # noqa: N815 - the name of the library

    def __init__(self, gpus: list[Gpu], *, is_root: bool = True) -> None:
        self.gpus, self.is_root = gpus, is_root
        vars(self).update(CODES)
        vars(self).update(PROFILES)

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> Gpu:
        return self._here(self.gpus[number])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Gpu:
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return self._here(gpu)
        raise NVMLError(CODES["NVML_ERROR_NOT_FOUND"])

    def nvmlDeviceSetPowerManagementLimit(self, gpu: Gpu, limit_mw: int) -> None:
        self._as_root()
        if not gpu.least_mw <= limit_mw <= gpu.most_mw:
            raise NVMLError(CODES["NVML_ERROR_INVALID_ARGUMENT"])
        gpu.limit_mw = limit_mw

    def nvmlDeviceSetGpuLockedClocks(self, gpu: Gpu, least: int, most: int) -> None:
        self._as_root()
        gpu.locked = (least, most)

    def nvmlDeviceResetGpuLockedClocks(self, gpu: Gpu) -> None:
        self._as_root()
        gpu.locked = None

    def nvmlDeviceGetPowerManagementLimitConstraints(self, gpu: Gpu) -> list[int]:
        if not gpu.has_range:
            raise NVMLError(CODES["NVML_ERROR_NOT_SUPPORTED"])
        return [gpu.least_mw, gpu.most_mw]

    def nvmlDeviceGetFieldValues(self, gpu: Gpu, fields: Sequence[int | tuple[int, int]]) -> list[SimpleNamespace]:
        if gpu.fields is None:
            raise NVMLError(CODES["NVML_ERROR_NOT_SUPPORTED"])
        keys = [each if isinstance(each, tuple) else (each, 0) for each in fields]
        return [
            SimpleNamespace(
                nvmlReturn=0 if key in gpu.fields else CODES["NVML_ERROR_NOT_SUPPORTED"],
                value=SimpleNamespace(uiVal=gpu.fields.get(key, 0)),
            )
            for key in keys
        ]

    def nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(self, gpu: Gpu, pointer: Any) -> None:
        if gpu.fields is None:
            raise NVMLError(CODES["NVML_ERROR_NOT_SUPPORTED"])
        current: CurrentProfiles = pointer._obj
        for bit in gpu.requested:
            current.requestedProfilesMask.mask[bit // 32] |= 1 << bit % 32
            if not any(other < bit for other in gpu.requested & gpu.conflicts.get(bit, set())):
                current.enforcedProfilesMask.mask[bit // 32] |= 1 << bit % 32

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The getters without a rule of their own."""
        told: dict[str, Callable[[Gpu], Any]] = {
            "nvmlDeviceGetPersistenceMode": lambda gpu: int(gpu.is_persistent),
            "nvmlDeviceGetUUID": lambda gpu: gpu.uuid.encode(),
            "nvmlDeviceGetName": lambda gpu: gpu.name,
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda gpu: gpu.most_mw,
            "nvmlDeviceGetPowerManagementLimit": lambda gpu: gpu.limit_mw,
            "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: gpu.limit_mw,
            "nvmlDeviceGetPowerUsage": lambda gpu: gpu.draw_mw,
            "nvmlDeviceGetTotalEnergyConsumption": lambda _: 5_000,
            "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=90, memory=40),
            "nvmlDeviceGetCurrentClocksEventReasons": _reasons,
        }
        if name in told:
            return lambda gpu: told[name](self._here(gpu))
        if name.startswith("nvmlDeviceGet"):
            return lambda *_: 1980 if "Clock" in name else 55
        raise AttributeError(name)

    def _here(self, gpu: Gpu) -> Gpu:
        if gpu.is_lost:
            raise NVMLError(CODES["NVML_ERROR_GPU_IS_LOST"])
        return gpu

    def _as_root(self) -> None:
        if not self.is_root:
            raise NVMLError(CODES["NVML_ERROR_NO_PERMISSION"])


def _reasons(gpu: Gpu) -> int:
    if gpu.reasons is None:
        raise NVMLError(CODES["NVML_ERROR_NOT_SUPPORTED"])
    return gpu.reasons
