"""Draw of a whole machine as metered by its BMC (Redfish, DSP0268: EnvironmentMetrics of a chassis, or its Power).

It includes power supplies, fans, CPUs and all devices: a total that no driver knows.
"""

from collections.abc import Mapping
from typing import Any

from power.devices.backend import BROKEN, REFUSED, DeviceError
from power.devices.redfish import ROOT, Web, members, number, resource

PLACES = ("Enclosure", "ImmersionTank", "Pod", "Rack", "RackGroup", "Row", "Sidecar", "Zone")
"""Chassis types that hold several machines."""


class ChassisMeter:
    """Meter of the one chassis that contains the whole machine."""

    def __init__(self, web: Web, chassis: str = "") -> None:
        """chassis: its Id, for BMCs with several chassis that are in no other; empty: the only one that is metered."""
        self._web, self._chassis = web, chassis
        self._path = ""

    def read_w(self) -> float:
        """Draw now in watts. Raises DeviceError."""
        if not self._path:
            self._path = self._found()
        watts = self._watts(self._get(self._path))
        if watts is None:
            path, self._path = self._path, ""
            raise DeviceError(BROKEN, f"{path} no longer reports its power")
        return watts

    def _found(self) -> str:
        metered = {}
        for path in members(self._web, f"{ROOT}/Chassis"):
            about = self._get(path)
            name = str(about.get("Id") or path.rstrip("/").rpartition("/")[2])
            wanted = name == self._chassis if self._chassis else self._is_outermost(about)
            if wanted and self._watts(about) is not None:
                metered[name] = path
        if len(metered) == 1:
            return next(iter(metered.values()))
        if self._chassis:
            raise DeviceError(REFUSED, f"its BMC has no chassis {self._chassis} that reports its power")
        if not metered:
            raise DeviceError(REFUSED, "no chassis of its BMC reports its power")
        raise DeviceError(
            REFUSED, f"several chassis report their power: choose one with redfish.chassis: {', '.join(metered)}"
        )

    def _is_outermost(self, about: Mapping[str, Any]) -> bool:
        """Whether it is the machine rather than a part of it, or of a rack."""
        if about.get("ChassisType") in PLACES:
            return False
        holder = ((about.get("Links") or {}).get("ContainedBy") or {}).get("@odata.id")
        return holder is None or self._get(holder).get("ChassisType") in PLACES

    def _watts(self, about: Mapping[str, Any]) -> float | None:
        if metrics := (about.get("EnvironmentMetrics") or {}).get("@odata.id"):
            reading = (self._get(metrics).get("PowerWatts") or {}).get("Reading")
            if (watts := number(reading)) is not None:
                return watts
        if power := (about.get("Power") or {}).get("@odata.id"):  # deprecated, but the only source on older BMCs
            controls = self._get(power).get("PowerControl") or [{}]
            return number(controls[0].get("PowerConsumedWatts"))
        return None

    def _get(self, path: str) -> Mapping[str, Any]:
        return resource(self._web, path)
