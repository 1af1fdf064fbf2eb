"""Devices through a Redfish service, out of band, for hosts on which no agent may run: a slow actuator (up to minutes).

A BMC answers in tenths of a second at best, applies a limit within 40 s, accepts few connections at once (GB200: 4) and
drops requests under load (DMTF DSP0266; EnvironmentMetrics of DSP0268). These calls block for as long as that takes.
`nodeagent/out_of_band.py` wraps them, limits the load on the BMC, and determines when a limit is in force.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from power.devices.backend import BROKEN, LOST, NO_PERMISSION, REFUSED, SILENT, DeviceError, DeviceFacts, DeviceReading

ROOT = "/redfish/v1"
_CODES = {401: NO_PERMISSION, 403: NO_PERMISSION, 404: LOST, **dict.fromkeys((400, 405, 409, 412), REFUSED)}
"""Codes of errors by HTTP status; BROKEN for all others."""


class Web(Protocol):
    """Transport of requests to the service."""

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], Any]:
        """(status, headers in lower case, decoded JSON). Raises OSError when there is no answer within the deadline."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    """Paths and facts of one device."""

    path: str
    metrics: str
    facts: DeviceFacts


class Redfish:
    """Accelerators of one BMC: every processor of type GPU or Accelerator that has EnvironmentMetrics.

    Readers and setters may each be called from one thread at the same time.
    """

    def __init__(self, web: Web, clock: Callable[[], float], setter_web: Web | None = None) -> None:
        """clock: monotonic seconds. setter_web: transport of the setters, so that a slow one delays no readings."""
        self._web, self._clock, self._setter_web = web, clock, setter_web or web
        self._known: dict[str, _Known] = {}
        self._unread: dict[str, DeviceError] = {}
        """Processors that did not answer when devices were searched, by path."""

    def close(self) -> None:
        return None

    def discover(self) -> tuple[DeviceFacts, ...]:
        known: dict[str, _Known] = {}
        unread: dict[str, DeviceError] = {}
        for system in members(self._web, f"{ROOT}/Systems"):
            processors = link(resource(self._web, system), "Processors")
            for path in members(self._web, processors) if processors else ():
                try:
                    about = resource(self._web, path)
                    if about.get("ProcessorType") in ("GPU", "Accelerator"):
                        metrics = link(about, "EnvironmentMetrics")
                        if not metrics:
                            raise DeviceError(REFUSED, f"{path} names no EnvironmentMetrics")
                        facts = _facts(path, about, resource(self._web, metrics))
                        known[facts.uuid] = _Known(path, metrics, facts)
                except DeviceError as error:  # one that does not answer hides no other
                    unread[path] = error
        self._unread = unread
        self._known = known
        return tuple(each.facts for each in known.values())

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        found: dict[str, DeviceReading | DeviceError] = dict(self._unread)
        for uuid, known in self._known.items():
            try:
                metrics = resource(self._web, known.metrics)
            except DeviceError as error:
                found[uuid] = error
                continue
            limit_w = _limit_w(metrics)
            # No energy counter: EnergykWh advances in steps of a watt-hour at best, 3600 J, as much as a GPU draws in
            # 5 s.
            found[uuid] = DeviceReading(
                uuid=uuid,
                at_s=self._clock(),
                draw_w=_draw_w(metrics, known.facts.max_w),
                limit_w=limit_w,
                requested_w=limit_w,
                temperature_c=reading(metrics, "TemperatureCelsius"),
            )
        return found

    def set_limit(self, uuid: str, limit_w: float) -> float:
        known = self._device(uuid)
        if not known.facts.can_limit:
            raise DeviceError(REFUSED, known.facts.why_not)
        _, headers, before = _request(self._setter_web, "GET", known.metrics)
        condition = {"If-Match": headers["etag"]} if "etag" in headers else {}
        limit: dict[str, Any] = {"SetPoint": round(limit_w)}
        if part(before, "PowerLimitWatts").get("ControlMode") == "Disabled":  # a set point would be in force for nobody
            limit["ControlMode"] = "Automatic"
        _request(self._setter_web, "PATCH", known.metrics, {"PowerLimitWatts": limit}, condition)
        _, _, metrics = _request(self._setter_web, "GET", known.metrics)
        reported_w = _limit_w(metrics)
        if reported_w is None:
            raise DeviceError(BROKEN, f"{known.metrics} reports no limit after one was set")
        return reported_w

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        """Limits clocks through `OperatingSpeedRangeMHz`, where the processor has it."""
        known = self._device(uuid)
        limit = {"SettingMax": None if max_mhz is None else round(max_mhz)}
        _request(self._setter_web, "PATCH", known.path, {"OperatingSpeedRangeMHz": limit})

    def _device(self, uuid: str) -> _Known:
        if uuid not in self._known:
            raise DeviceError(LOST, f"this BMC has no device {uuid}")
        return self._known[uuid]


def members(web: Web, path: str) -> list[str]:
    """The paths of a collection's members. Raises DeviceError."""
    listed = resource(web, path).get("Members")
    found = (link({"": member}, "") for member in (listed if isinstance(listed, list) else ()))
    return [each for each in found if each]


def resource(web: Web, path: str) -> Mapping[str, Any]:
    """A resource as a JSON object. Raises DeviceError."""
    _, _, found = _request(web, "GET", path)
    if not isinstance(found, Mapping):
        raise DeviceError(BROKEN, f"{path} is not a JSON object")
    return found


def _request(
    web: Web, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Mapping[str, str], Any]:
    try:
        status, answered, found = web(method, path, body, headers or {})
    except OSError as error:
        raise DeviceError(SILENT, f"{method} {path}: {error}") from error
    if status >= 400:
        code = _CODES.get(status, BROKEN)
        # The service's description of an error (DSP0266, extended information).
        about = found.get("error", {}) if isinstance(found, Mapping) else {}
        details = about.get("@Message.ExtendedInfo") or [{}]
        message = details[0].get("Message") or about.get("message") or ""
        raise DeviceError(code, f"{method} {path}: HTTP {status} {message}".strip())
    return status, answered, found


def _facts(path: str, about: Mapping[str, Any], metrics: Mapping[str, Any]) -> DeviceFacts:
    limit = part(metrics, "PowerLimitWatts")
    low, high = number(limit.get("AllowableMin")), number(limit.get("AllowableMax"))
    now = _limit_w(metrics) or 0.0
    can = low is not None and high is not None and low < high
    return DeviceFacts(
        uuid=str(about.get("UUID") or about.get("@odata.id") or path),
        model=str(about.get("Model") or "accelerator"),
        backend="redfish",
        min_w=now if low is None else low,
        max_w=now if high is None else high,
        default_w=number(limit.get("DefaultSetPoint")) or (now if high is None else high),
        can_limit=can,
        why_not="" if can else "its BMC reports no range of limits for it",
    )


def _limit_w(metrics: Any) -> float | None:
    """Limit in force: the set point, and the highest one where none is set yet or where it is above that."""
    limit = part(metrics, "PowerLimitWatts")
    wanted_w, high_w = number(limit.get("SetPoint")), number(limit.get("AllowableMax"))
    if high_w is not None and (wanted_w is None or limit.get("ControlMode") == "Disabled" or wanted_w > high_w):
        return high_w
    return wanted_w


_ABSURD = 4.0
"""Multiple of its highest limit that no device draws: milliwatts, or a register's bits."""


def _draw_w(metrics: Mapping[str, Any], high_w: float) -> float | None:
    draw_w = reading(metrics, "PowerWatts")
    return None if draw_w is not None and high_w > 0 and draw_w > _ABSURD * high_w else draw_w


def part(about: Any, name: str) -> Mapping[str, Any]:
    """A property that is an object; an empty one for what is absent, null or anything else."""
    found = about.get(name) if isinstance(about, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def link(about: Any, name: str) -> str:
    """Path behind a property that refers to a resource, as an object or as text; empty where there is none."""
    found = about.get(name) if isinstance(about, Mapping) else None
    found = found.get("@odata.id") if isinstance(found, Mapping) else found
    return found if isinstance(found, str) and found.startswith("/") else ""


def reading(metrics: Mapping[str, Any], name: str) -> float | None:
    """Value of a sensor excerpt, which some services write as a bare number."""
    found = metrics.get(name)
    return number(found.get("Reading") if isinstance(found, Mapping) else found)


def number(value: Any) -> float | None:
    """The value where it is a number from 0, also as text; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


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
        holder = link(part(about, "Links"), "ContainedBy")
        return not holder or self._get(holder).get("ChassisType") in PLACES

    def _watts(self, about: Mapping[str, Any]) -> float | None:
        if metrics := link(about, "EnvironmentMetrics"):
            watts = reading(self._get(metrics), "PowerWatts")
            if watts is not None and watts not in NO_METER:
                return watts
        if power := link(about, "Power"):  # deprecated, but the only source on older BMCs
            return _whole_w(self._get(power).get("PowerControl"))
        return None

    def _get(self, path: str) -> Mapping[str, Any]:
        return resource(self._web, path)


NO_METER = (0.0, 65535.0)
"""What sensors that are absent or not ready report: a machine whose BMC answers draws more than nothing."""
_WHOLE = ("system", "chassis", "server", "total", "node", "enclosure")
"""Words of names of a control that is of the whole machine."""


def _whole_w(controls: Any) -> float | None:
    """Draw of the machine by its power controls; None where several report and none is named the machine's."""
    listed = controls if isinstance(controls, list) else [controls]
    found = []
    for each in listed:
        watts = number(each.get("PowerConsumedWatts")) if isinstance(each, Mapping) else None
        if watts is not None and watts not in NO_METER:
            found.append((watts, f"{each.get('Name') or ''} {each.get('PhysicalContext') or ''}".lower()))
    whole = [watts for watts, name in found if any(word in name for word in _WHOLE)]
    if len(whole) == 1 or len(found) == 1:
        return (whole or [watts for watts, _ in found])[0]
    return None
