"""Timestamps of objects: what is read of them, and what is refused."""

import pytest

from controller.api.notation import instant


def test_a_timestamp_is_seconds_since_the_epoch() -> None:
    assert instant("1970-01-01T00:01:00Z") == 60.0


@pytest.mark.parametrize(
    "written", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-01-01T00:00:00", "soon", -1.0]
)
def test_a_zero_value_or_a_timestamp_without_a_zone_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="should be a timestamp"):
        instant(written)
