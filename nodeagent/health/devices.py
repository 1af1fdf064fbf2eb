"""Evidence of devices, from what the agent reads of them anyway: throttling, uncorrected memory errors."""

from collections.abc import Callable, Mapping, Sequence

from health.records.frames import Evidence, Source
from power.devices.backend import DeviceReading

HARDWARE = ("thermal", "power_brake")
"""Causes of throttling that are a fault of the node; `power_cap` is Tonnage's own, and no fault."""
CODES = {"thermal": "ThermalThrottle", "power_brake": "PowerBrake"}


class DeviceEvidence:
    """What the newest readings of all devices show."""

    def __init__(self, readings: Callable[[], Mapping[str, DeviceReading]]) -> None:
        self._readings = readings
        self._since: dict[tuple[str, str], float] = {}
        self._first_errors: dict[str, int] = {}

    def read(self, now_s: float) -> Sequence[Evidence]:
        found = {}
        for uuid, reading in self._readings().items():
            for cause in HARDWARE:
                if cause in (reading.throttled_by or ()):
                    found[(uuid, CODES[cause])] = f"clocks are held down: {cause}"
            if (errors := reading.uncorrected_errors) is not None:
                rise = errors - self._first_errors.setdefault(uuid, errors)
                if rise > 0:
                    found[(uuid, "UncorrectedErrors")] = f"{rise} uncorrected memory errors since the agent started"
        self._since = {key: self._since.get(key, now_s) for key in found}
        return [
            Evidence(Source.DEVICE, code, uuid, now_s - since_s, found[(uuid, code)])
            for (uuid, code), since_s in self._since.items()
        ]
