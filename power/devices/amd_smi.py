"""AMD devices through AMD SMI (`amdsmi`, part of ROCm). Setters need root; guests have them from ROCm 7.1.1 on.

Power is in watts when read and in microwatts when set. Some parts have a lowest limit equal to the default and so
cannot be capped at all, which is discovered.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from power.devices import backend

T = TypeVar("T")

MICRO = 1e-6
PACKAGE_SENSOR = 0
DRAWS = ("socket_power", "current_socket_power", "average_socket_power")
"""Fields with the draw; which one a part reports depends on its generation."""
NOT_REPORTED = (0xFFFF, 0xFFFFFFFF)
"""Values that mean "not known", where it is not the text N/A."""


class AmdSmi:
    """Devices that AMD SMI reports. Raises DeviceError(NO_LIBRARY) when there is no library or driver."""

    def __init__(self, clock: Callable[[], float], library: Any = None) -> None:
        """clock: monotonic seconds. library: the module `amdsmi`, or one that behaves like it."""
        self._clock = clock
        if library is None:
            try:
                import amdsmi  # comes with ROCm, not with Tonnage
            except (ImportError, KeyError) as error:  # it locates its library through the environment
                raise backend.DeviceError(backend.NO_LIBRARY, "amdsmi is not installed: it comes with ROCm") from error
            library = amdsmi
        self._smi = library
        self._checked(self._smi.amdsmi_init)

    def close(self) -> None:
        self._checked(self._smi.amdsmi_shut_down)

    def discover(self) -> tuple[backend.DeviceFacts, ...]:
        return backend.of_each(self._facts, self._checked(self._smi.amdsmi_get_processor_handles))

    def read(self) -> Mapping[str, backend.DeviceReading | backend.DeviceError]:
        found: dict[str, backend.DeviceReading | backend.DeviceError] = {}
        for number, handle in enumerate(self._checked(self._smi.amdsmi_get_processor_handles)):
            try:
                uuid = self._uuid(handle)
                found[uuid] = self._reading(handle, uuid)
            except backend.DeviceError as error:
                found[f"index-{number}"] = error
        return found

    def set_limit(self, uuid: str, limit_w: float) -> float:
        handle = self._handle(uuid)
        self._checked(lambda: self._smi.amdsmi_set_power_cap(handle, PACKAGE_SENSOR, round(limit_w / MICRO)))
        return float(self._cap(handle)["power_cap"]) * MICRO

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        handle = self._handle(uuid)
        if max_mhz is None:
            clocks = self._checked(lambda: self._smi.amdsmi_get_clock_info(handle, self._smi.AmdSmiClkType.GFX))
            max_mhz = float(clocks["max_clk"])
        limit_mhz = round(max_mhz)
        self._checked(lambda: self._smi.amdsmi_set_gpu_clk_limit(handle, "sclk", "max", limit_mhz))

    def _facts(self, handle: Any) -> backend.DeviceFacts:
        cap = self._cap(handle)
        low, high = float(cap["min_power_cap"]) * MICRO, float(cap["max_power_cap"]) * MICRO
        asic = self._checked(lambda: self._smi.amdsmi_get_gpu_asic_info(handle))
        return backend.DeviceFacts(
            uuid=self._uuid(handle),
            model=str(asic.get("market_name", "AMD GPU")),
            backend="amdsmi",
            min_w=low,
            max_w=high,
            default_w=float(cap.get("default_power_cap", cap["max_power_cap"])) * MICRO,
            can_limit=low < high,
            why_not="" if low < high else "its lowest limit is its default",
        )

    def _reading(self, handle: Any, uuid: str) -> backend.DeviceReading:
        smi = self._smi
        power = self._checked(lambda: smi.amdsmi_get_power_info(handle))
        activity = self._maybe(lambda: smi.amdsmi_get_gpu_activity(handle)) or {}
        energy = self._maybe(lambda: smi.amdsmi_get_energy_count(handle))
        cap_w = float(self._cap(handle)["power_cap"]) * MICRO
        joules = energy and float(energy["energy_accumulator"]) * float(energy["counter_resolution"]) * MICRO
        return backend.DeviceReading(
            uuid=uuid,
            at_s=self._clock(),
            draw_w=_number(*(power.get(name) for name in DRAWS)),
            limit_w=cap_w,
            requested_w=cap_w,
            energy_j=joules,
            busy_share=_share(activity.get("gfx_activity")),
            memory_busy_share=_share(activity.get("umc_activity")),
        )

    def _cap(self, handle: Any) -> Mapping[str, Any]:
        info: Mapping[str, Any] = self._checked(lambda: self._smi.amdsmi_get_power_cap_info(handle))
        return info

    def _uuid(self, handle: Any) -> str:
        return str(self._checked(lambda: self._smi.amdsmi_get_gpu_device_uuid(handle)))

    def _handle(self, uuid: str) -> Any:
        for handle in self._checked(self._smi.amdsmi_get_processor_handles):
            if self._uuid(handle) == uuid:
                return handle
        raise backend.DeviceError(backend.LOST, f"no device {uuid} on this machine")

    def _maybe(self, call: Callable[[], T]) -> T | None:
        try:
            return self._checked(call)
        except backend.DeviceError:
            return None

    def _checked(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._smi.AmdSmiLibraryException as error:
            smi = self._smi.amdsmi_wrapper
            codes = {
                smi.AMDSMI_STATUS_NO_PERM: backend.NO_PERMISSION,
                smi.AMDSMI_STATUS_NOT_FOUND: backend.LOST,
                smi.AMDSMI_STATUS_INVAL: backend.REFUSED,
                smi.AMDSMI_STATUS_NOT_SUPPORTED: backend.REFUSED,
            }
            raise backend.DeviceError(codes.get(error.get_error_code(), backend.BROKEN), str(error).strip()) from error


def _number(*values: Any) -> float | None:
    """The first value that is a number; parts that do not report one answer the text N/A."""
    reported = (float(value) for value in values if isinstance(value, int | float) and value not in NOT_REPORTED)
    return next(reported, None)


def _share(percent: Any) -> float | None:
    value = _number(percent)
    return None if value is None else value / 100
