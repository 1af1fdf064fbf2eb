"""A machine's own meter behind its BMC: of the chassis that holds all of it, read now and then."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from nodeagent.out_of_band import MeterReading, NodeMeter
from power.devices.backend import REFUSED, SILENT, DeviceError
from power.devices.redfish import ChassisMeter
from tests.clock import HandClock

CHASSIS = "/redfish/v1/Chassis"


def chassis(kind: str, inside: str = "", **more: Any) -> dict[str, Any]:
    links = {"Links": {"ContainedBy": {"@odata.id": f"{CHASSIS}/{inside}"}}} if inside else {}
    return {"ChassisType": kind, **links, **more}


def metered(name: str) -> dict[str, Any]:
    return {"EnvironmentMetrics": {"@odata.id": f"{CHASSIS}/{name}/EnvironmentMetrics"}}


@dataclass
class FakeChassis:
    """Calls of power.devices.redfish.Web, for chassis that the test makes up."""

    made: dict[str, dict[str, Any]]
    watts: dict[str, float] = field(default_factory=dict)
    is_silent: bool = False
    told: Any = None
    """What it tells as its Power instead."""

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], Any]:
        assert method == "GET"
        if self.is_silent:
            raise TimeoutError("timed out")
        found = self._resource(path)
        return (404, {}, None) if found is None else (200, {}, found)

    def _resource(self, path: str) -> Any:
        if path == CHASSIS:
            return {"Members": [{"@odata.id": f"{CHASSIS}/{name}"} for name in self.made]}
        name, _, rest = path.removeprefix(f"{CHASSIS}/").partition("/")
        match rest:
            case "":
                return {"Id": name, **self.made[name]}
            case "EnvironmentMetrics":
                return {"PowerWatts": {"Reading": self.watts.get(name)}}
            case "Power" if self.told is not None:
                return self.told
            case "Power":
                return {"PowerControl": [{"PowerConsumedWatts": self.watts.get(name)}]}
        return None


def test_the_machine_is_the_chassis_that_is_in_no_other_machine() -> None:
    made = {
        "HGX": chassis("Module", inside="DGX", **metered("HGX")),
        "DGX": chassis("RackMount", inside="R7", **metered("DGX")),
        "R7": chassis("Rack", **metered("R7")),
    }

    assert ChassisMeter(FakeChassis(made, {"HGX": 5200.0, "DGX": 8300.0, "R7": 31_000.0})).read_w() == 8300.0


def test_older_bmcs_tell_it_as_power_consumed() -> None:
    made = {"1": chassis("RackMount", Power={"@odata.id": f"{CHASSIS}/1/Power"})}

    assert ChassisMeter(FakeChassis(made, {"1": 640.0})).read_w() == 640.0


def test_of_several_machines_nobody_guesses_and_the_settings_name_one() -> None:
    bmc = FakeChassis({name: chassis("Sled", **metered(name)) for name in ("a", "b")}, {"a": 1.0, "b": 2.0})

    with pytest.raises(DeviceError, match=r"redfish\.chassis: a, b") as refused:
        ChassisMeter(bmc).read_w()

    assert refused.value.code == REFUSED
    assert ChassisMeter(bmc, "b").read_w() == 2.0


def test_a_chassis_without_a_meter_is_named_rather_than_taken_for_zero() -> None:
    bmc = FakeChassis({"1": chassis("RackMount", **metered("1"))})

    with pytest.raises(DeviceError, match="no chassis of its BMC reports its power"):
        ChassisMeter(bmc).read_w()
    with pytest.raises(DeviceError, match="no chassis 2"):
        ChassisMeter(bmc, "2").read_w()


def test_a_meter_that_falls_silent_keeps_its_last_reading_with_its_instant() -> None:
    """A user of readings therefore sees it grow old; a silent BMC is not a draw of 0."""
    bmc = FakeChassis({"1": chassis("RackMount", **metered("1"))}, {"1": 640.0})
    clock = HandClock(100.0)
    meter = NodeMeter(ChassisMeter(bmc).read_w, clock, Random(1), 5.0)  # noqa: S311 - spreads looks
    assert meter.reading is None

    read = meter.look()
    clock.now_s, bmc.is_silent = 160.0, True
    failed = meter.look()

    assert (read, failed) == (True, False)
    assert meter.reading == MeterReading(640.0, 100.0)
    with pytest.raises(DeviceError, match=SILENT):
        ChassisMeter(bmc).read_w()


@pytest.mark.parametrize(
    ("control", "watts"),
    [
        ([{"PowerConsumedWatts": 464}], 464.0),
        ({"PowerConsumedWatts": 464}, 464.0),
        ([{"PowerConsumedWatts": "464"}], 464.0),
        ([{"PowerConsumedWatts": None}], None),
        ([{"PowerConsumedWatts": 0}], None),
        ([{"PowerConsumedWatts": -1}], None),
        ([{"PowerConsumedWatts": 65535}], None),
        ([{"PowerConsumedWatts": float("nan")}], None),
        ([None], None),
        ([None, {"PowerConsumedWatts": 464}], 464.0),
        (
            [
                {"Name": "CPU Power", "PowerConsumedWatts": 210},
                {"Name": "System Power Control", "PowerConsumedWatts": 2900},
            ],
            2900.0,
        ),
        ([{"PowerConsumedWatts": 230}, {"PowerConsumedWatts": 234}], None),  # parts, or a whole and a part
    ],
)
def test_a_meter_with_an_odd_answer_has_a_value_or_says_that_there_is_none(control: Any, watts: float | None) -> None:
    web = FakeChassis(
        {"1": chassis("RackMount", Power={"@odata.id": f"{CHASSIS}/1/Power"})}, told={"PowerControl": control}
    )
    meter = ChassisMeter(web)

    if watts is not None:
        assert meter.read_w() == watts
    else:
        with pytest.raises(DeviceError, match="no chassis of its BMC reports its power"):
            meter.read_w()


@pytest.mark.parametrize(
    "odd", [{"EnvironmentMetrics": []}, {"EnvironmentMetrics": None}, {"Power": None}, {"Links": None}]
)
def test_a_chassis_whose_links_are_odd_is_one_without_a_meter(odd: dict[str, Any]) -> None:
    with pytest.raises(DeviceError, match="no chassis of its BMC"):
        ChassisMeter(FakeChassis({"1": {"ChassisType": "RackMount", **odd}})).read_w()
