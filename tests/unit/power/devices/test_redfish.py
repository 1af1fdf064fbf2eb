"""Devices behind a BMC: found by type, limited with the entity tag, seldom, and believed only when read back."""

import pytest

from power.devices.backend import LOST, REFUSED, SILENT, DeviceError, DeviceReading
from power.devices.redfish import Redfish
from tests.clock import HandClock
from tests.unit.power.devices.fake_bmc import FakeBmc


def behind(bmc: FakeBmc) -> tuple[Redfish, HandClock]:
    clock = HandClock(100.0)
    redfish = Redfish(bmc, clock)
    redfish.discover()
    return redfish, clock


def test_accelerators_are_found_and_processors_are_not() -> None:
    facts = Redfish(FakeBmc(), HandClock(100.0)).discover()

    assert [each.uuid for each in facts] == ["uuid-GPU_0", "uuid-GPU_1"]
    assert (facts[0].min_w, facts[0].max_w, facts[0].can_limit) == (200.0, 700.0, True)


def test_a_limit_is_set_under_the_entity_tag_and_read_back() -> None:
    bmc = FakeBmc()
    redfish, _ = behind(bmc)

    assert redfish.set_limit("uuid-GPU_1", 400.0) == 400.0
    assert bmc.limits_w == {"GPU_0": 700.0, "GPU_1": 400.0}


def test_a_bmc_that_says_yes_and_does_nothing_is_seen_through() -> None:
    redfish, _ = behind(FakeBmc(ignores_limits=True))

    assert redfish.set_limit("uuid-GPU_1", 400.0) == 700.0


def test_setters_do_not_go_through_what_readings_go_through() -> None:
    bmc, tells = FakeBmc(), FakeBmc()
    redfish = Redfish(bmc, HandClock(100.0), tells)
    redfish.discover()

    redfish.set_limit("uuid-GPU_0", 400.0)

    assert (bmc.limits_w["GPU_0"], tells.limits_w["GPU_0"]) == (700.0, 400.0)
    assert {method for method, _ in bmc.asked} == {"GET"}


def test_a_refusal_carries_the_words_of_the_service() -> None:
    redfish, _ = behind(FakeBmc())

    with pytest.raises(DeviceError, match="not in the range") as refused:
        redfish.set_limit("uuid-GPU_0", 100.0)

    assert refused.value.code == REFUSED


def test_a_silent_bmc_is_an_error_for_each_device_and_no_exception() -> None:
    bmc = FakeBmc()
    redfish, _ = behind(bmc)

    bmc.is_silent = True
    found = redfish.read()

    assert {error.code for error in found.values() if isinstance(error, DeviceError)} == {SILENT}
    assert len(found) == 2


def test_readings_say_draw_and_limit() -> None:
    redfish, _ = behind(FakeBmc())

    found = redfish.read()["uuid-GPU_0"]

    assert isinstance(found, DeviceReading)
    assert (found.at_s, found.draw_w, found.limit_w) == (100.0, 350.0, 700.0)


def test_an_unknown_device_is_lost() -> None:
    redfish, _ = behind(FakeBmc())

    with pytest.raises(DeviceError) as lost:
        redfish.set_limit("uuid-GPU_7", 300.0)

    assert lost.value.code == LOST


LIMIT = {"SetPoint": 700, "AllowableMin": 200, "AllowableMax": 700}
DRAW = {"Reading": 350}


@pytest.mark.parametrize(
    ("metrics", "draw_w", "limit_w"),
    [
        ({"PowerWatts": DRAW, "PowerLimitWatts": LIMIT}, 350.0, 700.0),
        ({"PowerWatts": {"Reading": None}, "PowerLimitWatts": LIMIT}, None, 700.0),  # asleep
        ({"PowerWatts": None, "PowerLimitWatts": LIMIT}, None, 700.0),
        ({"PowerWatts": 350, "PowerLimitWatts": LIMIT}, 350.0, 700.0),
        ({"PowerWatts": DRAW, "PowerLimitWatts": None}, 350.0, None),
        ({"PowerWatts": DRAW, "PowerLimitWatts": LIMIT, "TemperatureCelsius": None}, 350.0, 700.0),
        ({"PowerWatts": DRAW, "PowerLimitWatts": {**LIMIT, "SetPoint": None}}, 350.0, 700.0),  # none set yet
        ({"PowerWatts": DRAW, "PowerLimitWatts": {**LIMIT, "SetPoint": 300, "ControlMode": "Disabled"}}, 350.0, 700.0),
        ({"PowerWatts": DRAW, "PowerLimitWatts": {**LIMIT, "SetPoint": 1000}}, 350.0, 700.0),
        ({"PowerWatts": {"Reading": "350"}, "PowerLimitWatts": {**LIMIT, "SetPoint": "650"}}, 350.0, 650.0),
        ({"PowerWatts": {"Reading": 350_000}, "PowerLimitWatts": LIMIT}, None, 700.0),  # milliwatts
        ({"PowerWatts": {"Reading": -3}, "PowerLimitWatts": LIMIT}, None, 700.0),
        ({"PowerWatts": {"Reading": float("nan")}, "PowerLimitWatts": LIMIT}, None, 700.0),
        ({"PowerWatts": [350], "PowerLimitWatts": LIMIT}, None, 700.0),
    ],
)
def test_an_odd_answer_is_a_value_or_none_and_never_an_exception(
    metrics: dict[str, object], draw_w: float | None, limit_w: float | None
) -> None:
    bmc = FakeBmc(told={"GPU_1": metrics})
    found = behind(bmc)[0].read()["uuid-GPU_1"]

    assert isinstance(found, DeviceReading)
    assert (found.draw_w, found.limit_w, found.temperature_c) == (draw_w, limit_w, None)


def test_an_accelerator_that_tells_no_metrics_is_counted_and_hides_no_other() -> None:
    redfish, _ = behind(FakeBmc(told={"GPU_1": None}))

    found = redfish.read()

    assert isinstance(found["uuid-GPU_0"], DeviceReading)
    (error,) = [each for each in found.values() if isinstance(each, DeviceError)]
    assert (error.code, "GPU_1" in error.words) == (REFUSED, True)
