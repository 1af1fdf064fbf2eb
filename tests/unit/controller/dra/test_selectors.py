"""Device selectors: evaluated as kube-scheduler evaluates them, or refused."""

import subprocess
import sys
from itertools import count
from typing import Any

import pytest

from controller.api.structs import object_from
from controller.dra.objects import Device
from controller.dra.selectors import Selector, SelectorError, UnsupportedSelectorError, selector
from tests.builders.dra import DRIVER, device

H100 = object_from(
    device(
        "gpu-0",
        product="NVIDIA H100 80GB",
        attributes={
            "numa": {"int": 1},
            "ecc": {"bool": True},
            "driverVersion": {"version": "550.54.15"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        },
    ),
    Device,
)


def decide(expression: str, of: Device = H100) -> bool:
    return selector(expression).matches(DRIVER, of)


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("device.driver == 'gpu.nvidia.com'", True),
        ("device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'", True),
        ('device.attributes["gpu.nvidia.com"].productName.lowerAscii().matches("^.*h100.*$")', True),
        ('device.attributes["gpu.nvidia.com"].productName.startsWith("NVIDIA A100")', False),
        ('device.attributes["gpu.nvidia.com"].numa == 1', True),
        ('device.attributes["gpu.nvidia.com"].numa in [0, 2]', False),
        ('device.attributes["gpu.nvidia.com"].numa >= 1 && device.attributes["gpu.nvidia.com"].ecc', True),
        ('!device.attributes["gpu.nvidia.com"].ecc', False),
        # Values of different types are never equal: true is not 1.
        ('device.attributes["gpu.nvidia.com"].ecc == 1', False),
        ('device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:00"', True),
        ('device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0', True),
        ('device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("80Gi"))', False),
        ('device.capacity["gpu.nvidia.com"].memory == quantity("81920Mi")', True),
        ('device.attributes["gpu.nvidia.com"].driverVersion.isLessThan(semver("550.100.0"))', True),
        ('semver("1.0.0-rc.2").isLessThan(semver("1.0.0")) && semver("1.0.0-2").isLessThan(semver("1.0.0-10"))', True),
        ('"numa" in device.attributes["gpu.nvidia.com"]', True),
        ('has(device.attributes["gpu.nvidia.com"].nothing)', False),
        ('has(device.attributes["other.example"].numa)', False),
        # The side that decides wins over the error of the other, whichever comes first.
        ("true || device.attributes['gpu.nvidia.com'].nothing == 1", True),
        ("device.attributes['gpu.nvidia.com'].nothing == 1 || true", True),
        ("device.attributes['gpu.nvidia.com'].nothing == 1 && false", False),
        ("(false || true) && !(1 > 2)", True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_an_expression_means_what_cel_means(expression: str, *, matches: bool) -> None:
    assert decide(expression) is matches


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.nvidia.com'].nothing == 1",
        "device.attributes['gpu.nvidia.com'].nothing == 1 || false",
        "device.attributes['gpu.nvidia.com'].productName",
        "device.attributes['gpu.nvidia.com'].productName > 3",
        "device.attributes['gpu.nvidia.com'].numa.startsWith('1')",
        "semver('1.0') == semver('1.0.0')",
        f"semver('{'1' * 5000}.0.0') == semver('1.0.0')",
    ],
)
def test_what_cannot_be_decided_is_an_error_and_no_answer(expression: str) -> None:
    with pytest.raises(SelectorError):
        decide(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver ==",
        "device.driver == 'unclosed",
        "1.5 < 2",
        "device.capacity['gpu.nvidia.com'].memory > quantity('1Gi') && quantity('1') > quantity('2')",
        "",
        "nobody.knows == 1",
        "(" * 40 + "true" + ")" * 40,
        " && ".join(["true"] * 1500),
        "device" + ".a" * 1200,
        "1" * 5000 + " == 1",
    ],
    ids=lambda expression: expression[:40],
)
def test_what_is_not_supported_is_refused_before_any_device_is_looked_at(expression: str) -> None:
    with pytest.raises(UnsupportedSelectorError):
        selector(expression)


ATTRIBUTES = "device.attributes['gpu.nvidia.com']"


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (f"device.driver == 'gpu.nvidia.com' && {ATTRIBUTES}.type == 'gpu'", True),
        (f"{ATTRIBUTES}.productName.lowerAscii().matches('^.*a100.*$') && {ATTRIBUTES}.index in [0, 2]", True),
        (f"{ATTRIBUTES}.productName.startsWith('NVIDIA A100') || {ATTRIBUTES}.productName.contains('H100')", True),
        (f"['A100', 'H100'].exists(n, {ATTRIBUTES}.productName.contains(n))", True),
        (f"cel.bind(a, {ATTRIBUTES}, a.type == 'gpu' && a.index < 4)", True),
        (f"{ATTRIBUTES}.type == 'gpu' ? true : false", True),
        (f"{ATTRIBUTES}.index + 1 == 1", True),
        (f"{ATTRIBUTES}.productName.split('-')[1] == 'SXM4'", True),
        (f"{ATTRIBUTES}.productName.matches('(A100|H100)+')", True),
        (f"size({ATTRIBUTES}.productName) > 3", True),
        (f"'type' in {ATTRIBUTES}", True),
        (f"{ATTRIBUTES}.?missing.orValue(1) == 1", True),
        (f"{ATTRIBUTES}.productName.matches('(?i)nvidia')", True),
        ("1 + 1 == 2", True),
    ],
    ids=lambda expression: str(expression)[-40:],
)
def test_what_people_write_of_devices_is_understood(expression: str, *, matches: bool) -> None:
    a100 = device("gpu-0", product="NVIDIA A100-SXM4-80GB", attributes={"index": {"int": 0}})

    assert decide(expression, object_from(a100, Device)) is matches


def test_a_selector_that_takes_long_on_each_device_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 4,000 characters with a loop would hold up the plan for minutes."""
    used_s = count(step=0.001)
    monkeypatch.setattr("controller.dra.selectors.time.thread_time", lambda: next(used_s))
    slow = Selector("device.driver == 'gpu.nvidia.com'")

    assert all(slow.matches(DRIVER, H100) for _ in range(100))  # 100 ms of the 50 ms, and 0.5 ms for each of them
    with pytest.raises(SelectorError, match="takes too long"):
        assert all(slow.matches(DRIVER, H100) for _ in range(2))


def test_a_loop_has_an_end() -> None:
    each = str([1] * 60)
    with pytest.raises(SelectorError, match="budget"):
        decide(f"{each}.all(x, {each}.all(y, {each}.all(z, x == z)))")


def test_a_pattern_takes_bounded_time() -> None:
    """Python's `re` would backtrack for years."""
    assert not decide("'" + "a" * 64 + "'.matches('^(([a-z])+)+!$')")


def test_what_is_long_and_still_supported_is_decided() -> None:
    assert decide(" && ".join(["true"] * 199))
    assert decide("!" * 18 + "true")
    assert decide("!" * 1200 + "true")
    assert decide("(" * 18 + "true" + ")" * 18)


def test_a_list_as_a_value_cannot_be_decided() -> None:
    listing: Any = device("gpu-0", attributes={"links": {"ints": [1, 2]}})

    with pytest.raises(SelectorError, match="list"):
        decide("device.driver == 'gpu.nvidia.com'", object_from(listing, Device))


def test_cel_is_loaded_with_the_first_selector_and_not_by_every_operator() -> None:
    script = "import sys, controller.process.main; print('cel_expr_python' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603

    assert done.stdout == "False\n"
