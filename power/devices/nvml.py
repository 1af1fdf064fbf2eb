"""NVIDIA devices through NVML (nvidia-ml-py). Readers need no privileges; setters need root in the host's namespace.

NVML uses milliwatts for limits and draws. It identifies devices by index; here everything is by UUID, looked up for
each call, because indices change when a device is reset or lost.
"""

from collections.abc import Callable, Mapping
from ctypes import byref
from functools import partial
from typing import Any, TypeVar

from power.devices import backend

T = TypeVar("T")

MILLI = 1e-3
POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x04, 0x08, 0x20, 0x40, 0x80
"""Bits of the clocks' event reasons (nvml.h, nvmlClocksEventReason…)."""
REASONS = (
    (POWER_CAP, "power_cap"),
    (HW_SLOWDOWN, "hw_slowdown"),
    (SW_THERMAL | HW_THERMAL, "thermal"),
    (POWER_BRAKE, "power_brake"),
)
PROFILE = "NVML_POWER_PROFILE_"
"""Prefix of the names of workload power profiles."""


class Nvml:
    """Devices that NVML reports. Raises DeviceError(NO_LIBRARY) when there is no library or driver."""

    def __init__(self, clock: Callable[[], float], library: Any = None) -> None:
        """clock: monotonic seconds. library: the module `pynvml`, or one that behaves like it."""
        self._clock = clock
        if library is None:
            try:
                import pynvml  # optional: `pip install nvidia-ml-py`
            except ImportError as error:
                raise backend.DeviceError(
                    backend.NO_LIBRARY, "nvidia-ml-py is not installed: pip install 'tonnage[nvidia]'"
                ) from error
            library = pynvml
        self._nvml = library
        self._checked(self._nvml.nvmlInit)

    def close(self) -> None:
        self._checked(self._nvml.nvmlShutdown)

    def discover(self) -> tuple[backend.DeviceFacts, ...]:
        count = self._checked(self._nvml.nvmlDeviceGetCount)
        handles = [self._maybe(partial(self._nvml.nvmlDeviceGetHandleByIndex, number)) for number in range(count)]
        return backend.of_each(self._facts, (handle for handle in handles if handle is not None))

    def read(self) -> Mapping[str, backend.DeviceReading | backend.DeviceError]:
        found: dict[str, backend.DeviceReading | backend.DeviceError] = {}
        for number in range(self._checked(self._nvml.nvmlDeviceGetCount)):
            try:
                handle = self._checked(partial(self._nvml.nvmlDeviceGetHandleByIndex, number))
                uuid = _text(self._checked(partial(self._nvml.nvmlDeviceGetUUID, handle)))
            except backend.DeviceError as error:
                found[f"index-{number}"] = error  # without an answer there is no better name
                continue
            found[uuid] = self._reading(handle, uuid)
        return found

    def set_limit(self, uuid: str, limit_w: float) -> float:
        handle = self._handle(uuid)
        self._checked(lambda: self._nvml.nvmlDeviceSetPowerManagementLimit(handle, round(limit_w / MILLI)))
        return float(self._checked(lambda: self._nvml.nvmlDeviceGetEnforcedPowerLimit(handle))) * MILLI

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        handle = self._handle(uuid)
        if max_mhz is None:
            self._checked(lambda: self._nvml.nvmlDeviceResetGpuLockedClocks(handle))
        else:
            self._checked(lambda: self._nvml.nvmlDeviceSetGpuLockedClocks(handle, 0, round(max_mhz)))

    def _facts(self, handle: Any) -> backend.DeviceFacts:
        nvml = self._nvml
        uuid = _text(self._checked(partial(nvml.nvmlDeviceGetUUID, handle)))
        model = _text(self._checked(partial(nvml.nvmlDeviceGetName, handle)))
        bounds = self._maybe(lambda: nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle))
        default = self._maybe(lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle))
        enforced = self._maybe(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        low, high = bounds or (enforced or 0, enforced or 0)
        persistence = self._maybe(lambda: nvml.nvmlDeviceGetPersistenceMode(handle))
        highest_mhz = self._maybe(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
        return backend.DeviceFacts(
            uuid=uuid,
            model=model,
            backend="nvml",
            min_w=low * MILLI,
            max_w=high * MILLI,
            default_w=(default if default is not None else high) * MILLI,
            can_limit=bounds is not None and low < high,
            clocks_mhz=(0.0, float(highest_mhz)) if highest_mhz else None,
            why_not="" if bounds is not None and low < high else "the driver reports no range of limits for it",
            is_persistent=None if persistence is None else bool(persistence),
            ramp_w_per_s=self._ramp_w_per_s(handle),
            profiles=self._profiles(handle),
        )

    def _ramp_w_per_s(self, handle: Any) -> float | None:
        """Rate to which power smoothing limits a rise of the draw; None where it is off or not supported (before
        Blackwell, and with a library or driver that does not know it).

        An administrator's override applies to every profile, else the active one counts. Rates are in mW/s.
        """
        nvml = self._nvml
        try:
            on, active, override = self._fields(
                handle,
                nvml.NVML_FI_PWR_SMOOTHING_ENABLED,
                nvml.NVML_FI_PWR_SMOOTHING_ACTIVE_PRESET_PROFILE,
                nvml.NVML_FI_PWR_SMOOTHING_ADMIN_OVERRIDE_RAMP_UP_RATE,
            )
            if not on:
                return None
            if override is None or override == nvml.NVML_POWER_SMOOTHING_ADMIN_OVERRIDE_NOT_SET:
                (override,) = self._fields(handle, (nvml.NVML_FI_PWR_SMOOTHING_PROFILE_RAMP_UP_RATE, active or 0))
        except AttributeError:
            return None
        return override * MILLI if override else None

    def _fields(self, handle: Any, *fields: Any) -> list[int | None]:
        """Values of these fields, each a number or a pair of number and scope; None where one is not supported."""
        values = self._maybe(lambda: self._nvml.nvmlDeviceGetFieldValues(handle, fields))
        return [None if each.nvmlReturn else int(each.value.uiVal) for each in values or ()] or [None] * len(fields)

    def _profiles(self, handle: Any) -> tuple[str, ...]:
        """Workload power profiles in force: what the driver enforces of all requests, by priority and conflicts."""
        nvml = self._nvml
        try:
            current = nvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
            self._checked(lambda: nvml.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(handle, byref(current)))
        except (AttributeError, backend.DeviceError):  # an earlier library or device
            return ()
        known = [
            name
            for name in vars(nvml)
            if name.startswith(PROFILE) and "OPERATION" not in name and name != PROFILE + "MAX"
        ]
        names = {vars(nvml)[name]: name.removeprefix(PROFILE).lower() for name in known}
        mask = current.enforcedProfilesMask.mask
        bits = [number for number in range(32 * len(mask)) if mask[number // 32] >> number % 32 & 1]
        return tuple(names.get(bit, str(bit)) for bit in bits)

    def _reading(self, handle: Any, uuid: str) -> backend.DeviceReading | backend.DeviceError:
        nvml = self._nvml
        try:
            draw_mw = self._checked(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        except backend.DeviceError as error:
            if error.code == backend.LOST:
                return error
            draw_mw = None
        busy = self._maybe(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        reasons = self._maybe(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        return backend.DeviceReading(
            uuid=uuid,
            at_s=self._clock(),
            draw_w=_scaled(draw_mw, MILLI),
            limit_w=_scaled(self._maybe(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle)), MILLI),
            requested_w=_scaled(self._maybe(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle)), MILLI),
            energy_j=_scaled(self._maybe(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)), MILLI),
            busy_share=busy and busy.gpu / 100,
            memory_busy_share=busy and busy.memory / 100,
            sm_clock_mhz=_scaled(self._maybe(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)), 1.0),
            temperature_c=_scaled(
                self._maybe(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)), 1.0
            ),
            throttled_by=None if reasons is None else tuple(word for bits, word in REASONS if reasons & bits),
            uncorrected_errors=self._maybe(
                lambda: int(
                    nvml.nvmlDeviceGetTotalEccErrors(
                        handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                    )
                )
            ),
        )

    def _handle(self, uuid: str) -> Any:
        return self._checked(lambda: self._nvml.nvmlDeviceGetHandleByUUID(uuid))

    def _maybe(self, call: Callable[[], T]) -> T | None:
        """The result, or None where this device or driver does not report it."""
        try:
            return self._checked(call)
        except backend.DeviceError:
            return None

    def _checked(self, call: Callable[[], T]) -> T:
        nvml = self._nvml
        try:
            return call()
        except nvml.NVMLError as error:
            codes = {
                nvml.NVML_ERROR_LIBRARY_NOT_FOUND: backend.NO_LIBRARY,
                nvml.NVML_ERROR_DRIVER_NOT_LOADED: backend.NO_LIBRARY,
                nvml.NVML_ERROR_NO_PERMISSION: backend.NO_PERMISSION,
                nvml.NVML_ERROR_GPU_IS_LOST: backend.LOST,
                nvml.NVML_ERROR_NOT_FOUND: backend.LOST,
                nvml.NVML_ERROR_INVALID_ARGUMENT: backend.REFUSED,
                nvml.NVML_ERROR_NOT_SUPPORTED: backend.REFUSED,
                nvml.NVML_ERROR_TIMEOUT: backend.SILENT,
            }
            raise backend.DeviceError(codes.get(error.value, backend.BROKEN), str(error)) from error


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else float(value) * by


def _text(value: Any) -> str:
    """The text; older releases return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
