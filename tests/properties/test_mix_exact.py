"""Plans of small fleets serve what an exact model serves, at its cost, with a seat for every instance."""

import pytest

from benchmarks.mix_exact import compare
from benchmarks.mix_instances import Switches


@pytest.mark.parametrize("seed", range(1, 21))
def test_a_plan_serves_what_an_exact_model_serves_at_its_cost_with_a_seat_for_every_instance(seed: int) -> None:
    found = compare(seed, Switches())

    assert found.disagreements == ()
