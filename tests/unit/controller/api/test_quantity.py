"""Quantities and durations mean what they mean to Kubernetes."""

from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from controller.api.notation import duration, milli, quantity, seconds, whole


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("500m", Decimal("0.5")),
        ("1.5", Decimal("1.5")),
        (1.5, Decimal("1.5")),
        (2, Decimal(2)),
        ("16Gi", Decimal(16 * 2**30)),
        ("1e3", Decimal(1000)),
        ("1E3", Decimal(1000)),
        ("0.0001E", Decimal(10**14)),  # a suffix without digits after it is exa, not an exponent
        ("2k", Decimal(2000)),
        (".5", Decimal("0.5")),
        ("5.", Decimal(5)),
        ("100u", Decimal("0.0001")),
    ],
)
def test_a_quantity_has_its_exact_value(written: object, value: Decimal) -> None:
    assert quantity(written) == value


@pytest.mark.parametrize(
    "written",
    [
        "",
        "1.5GB",
        "1 Gi x",
        "Gi",
        "1e",
        "0x10",
        "１",
        "1ki",
        True,
        None,
        [1],
        "1e99",
        "1e1000000",
        "1e9999999999999999999",
        "1E",
    ],
)
def test_what_kubernetes_refuses_is_no_quantity(written: object) -> None:
    with pytest.raises(ValueError, match=r"quantity|too large"):
        quantity(written)


@pytest.mark.parametrize("written", ["-1", "-500m", -1])
def test_nobody_asks_for_less_than_nothing(written: object) -> None:
    with pytest.raises(ValueError, match="negative"):
        quantity(written)


def test_fractions_of_the_smallest_unit_are_rounded_up() -> None:
    assert milli(quantity("100u")) == 1
    assert whole(quantity("1.5")) == 2


@given(st.integers(0, 10**9))
def test_thousandths_written_with_their_suffix_come_back(cores_milli: int) -> None:
    assert milli(quantity(f"{cores_milli}m")) == cores_milli


@pytest.mark.parametrize(("written", "value"), [("40ms", 0.04), ("30s", 30.0), ("1m30s", 90.0), ("1.5h", 5400.0)])
def test_a_length_of_time_has_its_seconds(written: str, value: float) -> None:
    assert seconds(written) == value


@pytest.mark.parametrize("written", [40, 0.04, "40", "ms", "-1s", "40 ms", "", None, "1d"])
def test_a_length_of_time_without_its_unit_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="with its unit"):
        seconds(written)


def test_a_promise_of_no_time_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than zero"):
        seconds("0s")


@pytest.mark.parametrize("written", ["40ms", "30s", "1.5ms", "250s", "1209600s"])
def test_a_length_of_time_is_written_as_people_write_it(written: str) -> None:
    assert duration(seconds(written)) == written
