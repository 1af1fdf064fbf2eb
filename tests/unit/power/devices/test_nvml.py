"""NVIDIA devices: watts and UUIDs at our side, milliwatts and indices at theirs, and errors that name what is wrong."""

import pytest

from power.devices.backend import LOST, NO_LIBRARY, NO_PERMISSION, REFUSED, THROTTLES, DeviceError, DeviceReading
from power.devices.nvml import Nvml
from tests.unit.power.devices.fake_nvml import FakeNvml, Gpu


def nvml(*gpus: Gpu, is_root: bool = True) -> Nvml:
    return Nvml(lambda: 12.0, FakeNvml(list(gpus), is_root=is_root))


def test_devices_are_found_with_their_range_in_watts() -> None:
    facts = nvml(Gpu("GPU-1")).discover()[0]

    assert (facts.uuid, facts.model) == ("GPU-1", "NVIDIA H100 80GB HBM3")
    assert (facts.min_w, facts.max_w, facts.default_w) == (200.0, 700.0, 700.0)
    assert facts.can_limit


def test_a_device_without_a_range_cannot_be_limited() -> None:
    facts = nvml(Gpu("GPU-1", has_range=False)).discover()[0]

    assert not facts.can_limit
    assert facts.why_not


def test_a_device_whose_driver_forgets_its_limit_is_known() -> None:
    kept, forgotten = nvml(Gpu("GPU-1"), Gpu("GPU-2", is_persistent=False)).discover()

    assert (kept.is_persistent, forgotten.is_persistent) == (True, False)


def test_readings_are_in_watts_and_say_what_holds_the_clock() -> None:
    found = nvml(Gpu("GPU-1", reasons=0x04 | 0x80)).read()["GPU-1"]

    assert isinstance(found, DeviceReading)
    assert (found.at_s, found.draw_w, found.limit_w, found.energy_j) == (12.0, 350.0, 700.0, 5.0)
    assert (found.busy_share, found.memory_busy_share) == (0.9, 0.4)
    assert found.throttled_by == ("power_cap", "power_brake")


def test_what_holds_the_clock_is_told_in_the_words_for_it_or_not_at_all() -> None:
    every, unknown = nvml(Gpu("GPU-1", reasons=0x1FF), Gpu("GPU-2", reasons=None)).read().values()

    assert isinstance(every, DeviceReading)
    assert every.throttled_by == THROTTLES
    assert isinstance(unknown, DeviceReading)
    assert unknown.throttled_by is None


def test_a_lost_device_does_not_hide_the_others() -> None:
    found = nvml(Gpu("GPU-1", is_lost=True), Gpu("GPU-2")).read()

    lost, other = found["index-0"], found["GPU-2"]
    assert isinstance(lost, DeviceError)
    assert lost.code == LOST
    assert isinstance(other, DeviceReading)


def test_a_limit_is_read_back() -> None:
    gpu = Gpu("GPU-1")

    assert nvml(gpu).set_limit("GPU-1", 350.5) == 350.5
    assert gpu.limit_mw == 350_500


def test_a_device_is_found_under_its_uuid_whatever_its_index() -> None:
    first, second = Gpu("GPU-1"), Gpu("GPU-2")
    library = FakeNvml([first, second])
    devices = Nvml(lambda: 0.0, library)

    library.gpus = [second, first]
    devices.set_limit("GPU-1", 300.0)

    assert (first.limit_mw, second.limit_mw) == (300_000, 700_000)


@pytest.mark.parametrize(
    ("uuid", "limit_w", "is_root", "code"),
    [("GPU-1", 100.0, True, REFUSED), ("GPU-1", 300.0, False, NO_PERMISSION), ("GPU-9", 300.0, True, LOST)],
)
def test_what_cannot_be_set_says_why(uuid: str, limit_w: float, code: str, *, is_root: bool) -> None:
    with pytest.raises(DeviceError) as refused:
        nvml(Gpu("GPU-1"), is_root=is_root).set_limit(uuid, limit_w)

    assert refused.value.code == code


def test_clocks_are_held_and_let_go() -> None:
    gpu = Gpu("GPU-1")
    devices = nvml(gpu)

    devices.set_clocks("GPU-1", 1410.0)
    held = gpu.locked
    devices.set_clocks("GPU-1", None)

    assert held == (0, 1410)
    assert gpu.locked is None


def test_a_machine_without_a_driver_has_none_of_these_devices() -> None:
    """On a machine that has one, the library loads and there is nothing to show."""
    found = NO_LIBRARY
    try:
        Nvml(lambda: 0.0).close()
    except DeviceError as error:
        found = error.code

    assert found == NO_LIBRARY


def test_a_device_that_is_lost_between_its_handle_and_its_name_hides_no_other() -> None:
    library = FakeNvml([Gpu("GPU-1"), Gpu("GPU-2")], is_root=True)
    asked: list[object] = []
    name_of = library.nvmlDeviceGetName

    def nameless(handle: object) -> object:
        asked.append(handle)
        if len(asked) == 1:
            raise library.NVMLError(library.NVML_ERROR_GPU_IS_LOST)
        return name_of(handle)

    library.nvmlDeviceGetName = nameless  # type: ignore[method-assign]

    assert [each.uuid for each in Nvml(lambda: 12.0, library).discover()] == ["GPU-2"]


@pytest.mark.parametrize(
    ("fields", "ramp_w_per_s"),
    [
        (None, None),  # before Blackwell
        ({}, None),
        ({(251, 0): 0, (264, 0): 2, (261, 2): 500_000}, None),  # off
        ({(251, 0): 1, (264, 0): 2, (261, 2): 500_000, (261, 0): 900_000}, 500.0),
        ({(251, 0): 1, (264, 0): 2, (261, 2): 500_000, (266, 0): 0xFFFFFFFF}, 500.0),
        ({(251, 0): 1, (264, 0): 2, (261, 2): 500_000, (266, 0): 250_000}, 250.0),
    ],
)
def test_the_ramp_of_power_smoothing_is_the_administrators_or_the_active_profiles(
    fields: dict[tuple[int, int], int] | None, ramp_w_per_s: float | None
) -> None:
    assert nvml(Gpu("GPU-1", fields=fields)).discover()[0].ramp_w_per_s == ramp_w_per_s


def test_workload_profiles_are_those_that_the_driver_enforces() -> None:
    every, arbitrated, old = nvml(
        Gpu("GPU-1", fields={}, requested={0, 6, 200}),
        Gpu("GPU-2", fields={}, requested={0, 1}, conflicts={1: {0}}),
        Gpu("GPU-3", requested={1}),
    ).discover()

    assert every.profiles == ("max_p", "llm_inference", "200")
    assert arbitrated.profiles == ("max_p",)
    assert old.profiles == ()
