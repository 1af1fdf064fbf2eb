"""Services that may have a cache of prompts beside an exact model that is written apart from the planner."""

import math

import pytest

from controller.settings import settings_from
from tests.mix_exact.comparison import planned
from tests.mix_exact.phases import most_of_cache, random_service, solved_exactly
from tests.properties.test_phases_exact import GAP, seats_and_sales


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 100))])
def test_the_size_of_the_cache_and_the_cost_are_those_of_the_exact_model(seed: int) -> None:
    """Within the gap that the plan states: of sizes for which it has no work left it knows a bound alone."""
    manifests = random_service(seed, cached=True)
    best = min(min(solved_exactly(manifests, k).values()) for k in range(most_of_cache(manifests) + 1))
    snapshot, plan = planned(manifests, settings_from({}))
    certificate = plan.certificates.get("mix")

    if math.isinf(best):
        assert any(each.refusal for each in plan.services)
        return
    assert not any(each.refusal for each in plan.services)
    assert certificate is not None
    assert best * (1 - 1e-6) <= certificate.objective <= best / (1 - max(certificate.gap, GAP))
    assert certificate.bound <= best * (1 + 1e-6)
    seated, sold = seats_and_sales(snapshot, plan)
    assert seated == sold
