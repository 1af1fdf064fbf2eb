"""A source that measures wrongly for a time costs minutes, not the rest of the day."""

import pytest

from tests.rigs.scaling.bad_inputs import ALLOWED_MINUTES, CASES, found_in

SOON_OVER = (
    "5 samples × 10,000",
    "5 samples of 1e300",
    "5 samples × 10,000, a new leader",
    "the query's unit changes",
)


@pytest.mark.parametrize("case", SOON_OVER)
def test_a_policy_is_off_for_minutes_where_its_source_measures_wrongly(case: str) -> None:
    (found,) = found_in((case,), (8.0,))

    assert case in CASES
    assert found.off_minutes <= ALLOWED_MINUTES
