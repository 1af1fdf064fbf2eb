"""Out-of-band limits: no caller waits for a BMC, requests are rare, and a limit counts once it must be in force."""

from random import Random

import pytest

from nodeagent.out_of_band import OutOfBand
from nodeagent.settings import RedfishSettings
from power.devices.backend import REFUSED, SILENT, DeviceError, DeviceReading
from power.devices.redfish import Redfish
from tests.clock import HandClock
from tests.unit.power.devices.fake_bmc import FakeBmc

BMC = RedfishSettings(host="bmc", look_s=5.0, rest_s=10.0, settles_s=40.0)


class Exact(Random):
    """No pause is longer than it need be."""

    def uniform(self, a: float, b: float) -> float:
        return a


class Far:
    """Devices behind a BMC whose threads are the test's own steps."""

    def __init__(self, pacing: RedfishSettings = BMC) -> None:
        self.bmc, self.clock = FakeBmc(), HandClock(100.0)
        self.band = OutOfBand(Redfish(self.bmc, self.clock), self.clock, Exact(), pacing)
        self.band.discover()

    def limit_w(self, uuid: str = "uuid-GPU_0") -> float | None:
        reading = self.band.read()[uuid]
        assert isinstance(reading, DeviceReading)
        return reading.limit_w

    def patches(self) -> int:
        return sum(method == "PATCH" for method, _ in self.bmc.asked)

    def passes(self, for_s: float) -> None:
        self.clock.now_s += for_s
        self.band.poll()
        self.band.send_due()


def test_whoever_asks_gets_an_answer_without_a_request() -> None:
    far = Far()
    asked = len(far.bmc.asked)

    told_w = far.band.set_limit("uuid-GPU_0", 300.0)
    far.band.read()

    assert told_w == 700.0
    assert len(far.bmc.asked) == asked


def test_a_lower_limit_counts_as_enforced_only_when_it_must_be_at_work() -> None:
    far = Far()
    far.band.set_limit("uuid-GPU_0", 300.0)
    far.band.send_due()

    set_to_w, at_once_w = far.bmc.limits_w["GPU_0"], far.limit_w()
    for _ in range(7):
        far.passes(5.0)
    before_w = far.limit_w()
    far.passes(5.0)

    # Accepted at 100 s; at 135 s the old limit may still be in force, at 140 s no longer.
    assert (set_to_w, at_once_w, before_w, far.limit_w()) == (300.0, 700.0, 700.0, 300.0)


def test_a_higher_limit_counts_from_the_moment_it_is_on_its_way() -> None:
    far = Far()
    far.bmc.limits_w["GPU_0"] = 300.0
    far.passes(5.0)
    far.passes(50.0)
    assert far.limit_w() == 300.0

    far.band.set_limit("uuid-GPU_0", 600.0)
    far.band.send_due()

    assert far.limit_w() == 600.0


def test_a_limit_that_was_refused_may_be_at_work_all_the_same() -> None:
    """The answer was lost, or the BMC took it and failed afterwards."""
    far = Far(RedfishSettings(host="bmc", look_s=60.0))
    far.bmc.limits_w["GPU_0"] = 300.0
    far.passes(5.0)
    far.passes(50.0)
    far.bmc.is_silent = True
    far.band.set_limit("uuid-GPU_0", 600.0)
    far.band.send_due()

    assert far.limit_w() == 600.0
    far.clock.now_s += 41.0
    assert far.limit_w() == 300.0


def test_a_device_is_told_once_in_a_while_and_then_the_newest_limit() -> None:
    far = Far()
    for wanted_w in (400.0, 450.0, 500.0, 550.0):
        far.band.set_limit("uuid-GPU_0", wanted_w)
        far.band.send_due()
        far.clock.now_s += 2.0
    told, first_w = far.patches(), far.bmc.limits_w["GPU_0"]
    far.clock.now_s += 2.0
    far.band.send_due()

    assert (told, first_w) == (1, 400.0)
    assert (far.patches(), far.bmc.limits_w["GPU_0"]) == (2, 550.0)


def test_the_same_limit_is_not_told_again() -> None:
    far = Far()
    for _ in range(30):
        far.band.set_limit("uuid-GPU_0", 400.0)
        far.passes(2.0)

    assert far.patches() == 1


def test_a_limit_that_somebody_else_undid_is_told_again() -> None:
    far = Far()
    far.band.set_limit("uuid-GPU_0", 400.0)
    far.passes(1.0)
    far.bmc.limits_w["GPU_0"] = 700.0  # the BMC was restarted
    far.passes(11.0)

    assert far.bmc.limits_w["GPU_0"] == 400.0


def test_a_bmc_that_fails_is_left_alone_longer_and_longer() -> None:
    far = Far()
    far.band.set_limit("uuid-GPU_0", 100.0)  # out of its range
    at_s = []
    for _ in range(300):
        before = far.patches()
        far.band.send_due()
        if far.patches() > before:
            at_s.append(far.clock.now_s - 100.0)
        far.clock.now_s += 1.0

    # Rests of 20, 40, 80, then 120 s.
    assert at_s == [0.0, 20.0, 60.0, 140.0, 260.0]


def test_what_became_of_an_attempt_is_told_once() -> None:
    far = Far()
    far.band.set_limit("uuid-GPU_0", 100.0)
    far.band.send_due()

    with pytest.raises(DeviceError, match="not in the range") as refused:
        far.band.set_limit("uuid-GPU_0", 100.0)

    assert refused.value.code == REFUSED
    assert far.band.set_limit("uuid-GPU_0", 300.0) == 700.0


def test_readings_are_as_old_as_they_are_and_end_after_three_looks() -> None:
    far = Far()
    far.bmc.is_silent = True
    far.passes(14.0)
    old = far.band.read()["uuid-GPU_0"]
    far.passes(2.0)
    none = far.band.read()["uuid-GPU_0"]

    assert isinstance(old, DeviceReading)
    assert old.at_s == 100.0
    assert isinstance(none, DeviceError)
    assert none.code == SILENT


def test_two_nodes_do_not_knock_at_the_same_moment() -> None:
    rests = []
    for seed in (1, 2):
        clock, bmc = HandClock(100.0), FakeBmc()
        band = OutOfBand(Redfish(bmc, clock), clock, Random(seed), BMC)  # noqa: S311 - spreads requests
        band.discover()
        band.set_limit("uuid-GPU_0", 400.0)
        band.send_due()
        band.set_limit("uuid-GPU_0", 500.0)
        rests.append(band.send_due())

    assert rests[0] != rests[1]
    assert all(10.0 <= rest <= 12.5 for rest in rests)


def test_a_higher_limit_counts_while_its_request_is_under_way() -> None:
    """It may be in force before the answer arrives."""
    far = Far()
    far.bmc.limits_w["GPU_0"] = 300.0
    far.passes(5.0)
    far.passes(50.0)
    counted: list[float | None] = []
    far.bmc.on_patch = lambda: counted.append(far.limit_w())

    far.band.set_limit("uuid-GPU_0", 600.0)
    far.band.send_due()

    assert counted == [600.0]


def test_a_reading_from_before_a_limit_was_set_says_nothing_about_it() -> None:
    """It was under way while the limit was set, and is delivered afterwards. Else the limit would be set again."""
    far = Far()
    far.bmc.limits_w["GPU_0"] = 300.0
    far.passes(5.0)
    far.passes(50.0)
    far.band.set_limit("uuid-GPU_0", 600.0)
    far.band.send_due()

    far.bmc.limits_w["GPU_0"] = 300.0
    far.band.poll()  # at the instant of the answer: it was read no later
    far.bmc.limits_w["GPU_0"] = 600.0
    far.clock.now_s += 11.0  # its rest is over
    far.band.send_due()

    assert far.patches() == 1
    assert far.limit_w() == 600.0


def test_limits_are_lowered_before_others_are_raised() -> None:
    """Each request takes seconds; until it is answered the power that is to be raised is still drawn elsewhere."""
    far = Far()
    far.bmc.limits_w["GPU_0"] = 300.0
    far.passes(5.0)
    far.band.set_limit("uuid-GPU_0", 600.0)
    far.band.set_limit("uuid-GPU_1", 400.0)

    far.band.send_due()

    patched = [path.split("/")[-2] for method, path in far.bmc.asked if method == "PATCH"]
    assert patched == ["GPU_1", "GPU_0"]
