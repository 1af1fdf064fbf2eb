"""A BMC as a state machine: two accelerators, entity tags, limits taken or ignored, and silence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

GPUS = ("GPU_0", "GPU_1")
SYSTEM = "/redfish/v1/Systems/HGX"


@dataclass
class FakeBmc:
    """Calls of power.devices.redfish.Web."""

    limits_w: dict[str, float] = field(default_factory=lambda: dict.fromkeys(GPUS, 700.0))
    draw_w: dict[str, float] = field(default_factory=lambda: dict.fromkeys(GPUS, 350.0))
    etag: int = 1
    is_silent: bool = False
    ignores_limits: bool = False
    """Answers 204 and changes nothing."""
    told: dict[str, Any] = field(default_factory=dict)
    """What a device tells as its metrics instead; None: the device names none."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    on_patch: Callable[[], None] = lambda: None
    """Called when a limit has been taken, before it is answered."""

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], Any]:
        self.asked.append((method, path))
        if self.is_silent:
            raise TimeoutError("timed out")
        if method == "PATCH":
            return self._patched(path, body or {}, headers)
        found = self._resource(path)
        return (200, {"etag": f'"{self.etag}"'}, found) if found else (404, {}, {"error": {"message": "no resource"}})

    def _patched(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], Any]:
        if headers.get("If-Match") != f'"{self.etag}"':
            return 412, {}, {"error": {"message": "precondition failed"}}
        wanted = body["PowerLimitWatts"]["SetPoint"]
        if not 200 <= wanted <= 700:
            message = {"@Message.ExtendedInfo": [{"Message": f"The value {wanted} is not in the range."}]}
            return 400, {}, {"error": message}
        if not self.ignores_limits:
            self.limits_w[path.split("/")[-2]] = float(wanted)
        self.etag += 1
        self.on_patch()
        return 204, {}, None

    def _resource(self, path: str) -> Any:
        processors = f"{SYSTEM}/Processors"
        if path == "/redfish/v1/Systems":
            return {"Members": [{"@odata.id": SYSTEM}]}
        if path == SYSTEM:
            return {"Processors": {"@odata.id": processors}}
        if path == processors:
            return {"Members": [{"@odata.id": f"{processors}/{name}"} for name in ("CPU_0", *GPUS)]}
        if path == f"{processors}/CPU_0":
            return {"ProcessorType": "CPU", "EnvironmentMetrics": {"@odata.id": f"{path}/EnvironmentMetrics"}}
        for name in GPUS:
            here = f"{processors}/{name}"
            if path == here:
                metrics = {"@odata.id": f"{here}/EnvironmentMetrics"} if self.told.get(name, True) is not None else None
                return {"ProcessorType": "GPU", "UUID": f"uuid-{name}", "Model": "H100", "EnvironmentMetrics": metrics}
            if path == f"{here}/EnvironmentMetrics" and name in self.told:
                return self.told[name]
            if path == f"{here}/EnvironmentMetrics":
                limit = {"SetPoint": self.limits_w[name], "AllowableMin": 200, "AllowableMax": 700}
                return {"PowerLimitWatts": limit, "PowerWatts": {"Reading": self.draw_w[name]}}
        return None
