"""Device selectors: evaluated as kube-scheduler evaluates them, or refused."""

from typing import Any

import pytest

from controller.api.structs import object_from
from controller.dra.objects import Device
from controller.dra.selectors import selector
from controller.dra.undecided import SelectorError, UnsupportedSelectorError
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
        "device.attributes['gpu.nvidia.com'].productName.matches('(?i)h100')",
        "device.capacity['gpu.nvidia.com'].memory > quantity('1Gi')",
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
        "cel.bind(a, device.attributes['x'], a.y == 1)",
        "[1, 2].exists(x, x == device.attributes['x'].y)",
        "device.attributes['x'].y == 1 ? true : false",
        "device.driver ==",
        "device.driver == 'unclosed",
        "1 + 1 == 2",
        "1.5 < 2",
        "",
        "nobody.knows == 1",
        "(" * 21 + "true" + ")" * 21,
        "!" * 1200 + "true",
        " && ".join(["true"] * 1500),
        "device" + ".a" * 1200,
        "1" * 5000 + " == 1",
    ],
    ids=lambda expression: expression[:40],
)
def test_what_is_not_supported_is_refused_before_any_device_is_looked_at(expression: str) -> None:
    with pytest.raises(UnsupportedSelectorError):
        selector(expression)


def test_what_is_long_and_still_supported_is_decided() -> None:
    assert decide(" && ".join(["true"] * 199))
    assert decide("!" * 18 + "true")
    assert decide("(" * 18 + "true" + ")" * 18)


def test_a_list_as_a_value_cannot_be_decided() -> None:
    listing: Any = device("gpu-0", attributes={"links": {"ints": [1, 2]}})

    with pytest.raises(SelectorError, match="list"):
        decide("device.driver == 'gpu.nvidia.com'", object_from(listing, Device))
