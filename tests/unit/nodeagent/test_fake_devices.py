"""Fake devices misbehave as real ones do, and only on request."""

from collections.abc import Callable

import pytest

from power.devices.backend import LOST, REFUSED, SILENT, DeviceError, DeviceReading
from tests.clock import HandClock
from tests.fake_devices import FakeDevice, FakeDevices


def devices(device: FakeDevice) -> tuple[FakeDevices, HandClock]:
    clock = HandClock()
    return FakeDevices([device], clock), clock


def reading(of: FakeDevices) -> DeviceReading:
    found = of.read()["g"]
    assert isinstance(found, DeviceReading)
    return found


def test_a_limit_is_obeyed_after_a_while_and_passed_by_a_little() -> None:
    node, clock = devices(FakeDevice("g", wants_w=lambda _: 600.0))

    assert node.set_limit("g", 300.0) == 300.0
    before = reading(node).draw_w
    clock.now_s = 1.5

    assert before == 600.0
    assert reading(node).draw_w == pytest.approx(300.0 * 1.03)


def test_an_idle_device_draws_its_idle_watts() -> None:
    node, _ = devices(FakeDevice("g", wants_w=lambda _: 0.0))

    assert reading(node).draw_w == 70.0
    assert reading(node).busy_share == 0.0


def test_the_energy_counter_adds_up_what_was_drawn() -> None:
    node, clock = devices(FakeDevice("g", wants_w=lambda _: 500.0))
    reading(node)

    clock.now_s = 10.0

    assert reading(node).energy_j == pytest.approx(5000.0)


def test_a_liar_reports_what_it_was_asked_and_draws_what_it_likes() -> None:
    node, clock = devices(FakeDevice("g", lies=True))

    node.set_limit("g", 300.0)
    clock.now_s = 5.0

    assert reading(node).limit_w == 300.0
    assert reading(node).draw_w == 600.0


def test_a_stuck_device_reports_its_old_limit() -> None:
    node, clock = devices(FakeDevice("g", stuck=True))

    assert node.set_limit("g", 300.0) == 700.0
    clock.now_s = 5.0

    assert reading(node).limit_w == 700.0


def test_a_clamping_device_says_what_it_made_of_it() -> None:
    node, clock = devices(FakeDevice("g", clamps_to_w=(400.0, 700.0)))

    assert node.set_limit("g", 250.0) == 400.0
    clock.now_s = 5.0

    assert reading(node).limit_w == 400.0


def test_a_brake_holds_the_draw_whatever_the_limit_and_is_told_until_it_lets_go() -> None:
    device = FakeDevice("g", wants_w=lambda _: 600.0, brake_w=200.0)
    node, _ = devices(device)

    braked = reading(node)
    device.brake_w = None
    free = reading(node)

    assert (braked.draw_w, braked.limit_w, braked.throttled_by) == (200.0, 700.0, ("hw_slowdown", "power_brake"))
    assert (free.draw_w, free.throttled_by) == (600.0, ())


def test_a_reboot_forgets_limits() -> None:
    device = FakeDevice("g")
    node, clock = devices(device)
    node.set_limit("g", 300.0)
    clock.now_s = 5.0

    device.reboot(5.0)

    assert reading(node).limit_w == 700.0


@pytest.mark.parametrize(
    ("device", "call", "code"),
    [
        (FakeDevice("g"), lambda node: node.set_limit("g", 100.0), REFUSED),
        (FakeDevice("g", refuses=True), lambda node: node.set_limit("g", 300.0), REFUSED),
        (FakeDevice("g", silent_from_s=0.0), lambda node: node.set_limit("g", 300.0), SILENT),
        (FakeDevice("g", lost_from_s=0.0), lambda node: node.set_limit("g", 300.0), LOST),
        (FakeDevice("g"), lambda node: node.set_limit("h", 300.0), LOST),
    ],
)
def test_refusals_name_their_kind(device: FakeDevice, call: Callable[[FakeDevices], object], code: str) -> None:
    node, _ = devices(device)

    with pytest.raises(DeviceError) as refused:
        call(node)

    assert refused.value.code == code
