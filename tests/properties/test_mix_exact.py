"""Plans of small fleets serve what an exact model serves, at its cost, with a seat for every instance."""

import pytest

from tests.mix_exact.comparison import compare
from tests.mix_exact.fleets import Switches


@pytest.mark.parametrize("seed", range(1, 21))
def test_a_plan_serves_what_an_exact_model_serves_at_its_cost_with_a_seat_for_every_instance(seed: int) -> None:
    found = compare(seed, Switches())

    assert found.disagreements == ()
