"""What-if results: scenarios are compared by what they have in common."""

from datetime import UTC, datetime

from cli.inputs.scenarios import WhatIfResult
from cli.printing.scenario_output import as_json, as_table
from simulator.scenarios import Answer, Scenario, change_per_hour
from simulator.sweep.runner import Swept


def answer(*refused: str, **cost_of: float) -> Answer:
    total = sum(cost_of.values())
    return Answer(
        services_per_hour=total,
        bound_per_hour=None,
        fleet_per_hour=100.0,
        idle_per_hour=50.0,
        gpus=8,
        gpus_used=4.0,
        pods=4,
        running=4,
        unplaced=0,
        refused_services=len(refused),
        refused=refused,
        cost_of=cost_of,
        evictions=0,
        moves=0,
    )


TODAY = answer(chat=20.0, search=30.0)
DOUBLED = answer("search", chat=39.0)
"""The sum falls from 50 to 39 dollars, but the one service that is planned in both costs 19 more."""


def test_a_refused_service_is_no_saving() -> None:
    assert change_per_hour(DOUBLED, TODAY) == 19.0


def test_a_refused_service_is_named() -> None:
    scenarios = (Scenario(), Scenario(demand=2.0))
    swept = Swept(done=tuple(zip(scenarios, (TODAY, DOUBLED), strict=True)))
    result = WhatIfResult(scenarios, swept, datetime(2026, 1, 1, tzinfo=UTC), 1.0)

    (row,) = (line.split() for line in as_table(result).splitlines() if line.startswith("demand × 2"))

    assert "+19.00" in row
    assert row[-1] == "search"
    assert '"cost_of": {' in as_json(result)
