"""What-if results: scenarios are compared by what they have in common."""

from dataclasses import replace
from datetime import UTC, datetime

from cli.inputs.sweeps import WhatIfResult
from cli.printing.scenario_output import as_html, as_json, as_table, headline
from simulator.scenarios import Scenario, ScenarioAnswer, change_per_hour
from simulator.sweep.runner import Swept


def answer(*refused: str, **cost_of: float) -> ScenarioAnswer:
    total = sum(cost_of.values())
    return ScenarioAnswer(
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


def of(*answers: ScenarioAnswer) -> WhatIfResult:
    """Results for 1, 2, ... times the demand."""
    scenarios = tuple(Scenario(demand=float(number)) for number in range(1, len(answers) + 1))
    return WhatIfResult(scenarios, Swept(done=tuple(zip(scenarios, answers, strict=True))), AT, 1.0)


AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_refused_service_is_named() -> None:
    result = of(TODAY, DOUBLED)

    (row,) = (line.split() for line in as_table(result).splitlines() if line.startswith("demand × 2"))

    assert "+19.00" in row
    assert row[-1] == "search"
    assert '"cost_of": {' in as_json(result)


def test_a_change_that_leaves_out_a_service_says_so_below_the_table() -> None:
    """50 dollars become 39, and the change is +19."""
    note = "$ CHANGE: against the unchanged fleet, of services planned in both: a refused service saves nothing."

    assert as_table(of(TODAY, DOUBLED)).splitlines()[-1] == note
    assert note not in as_table(of(TODAY, TODAY))


def test_the_chart_of_costs_shows_only_services_that_every_scenario_plans() -> None:
    page = as_html(of(TODAY, DOUBLED))

    assert "Dollars per hour of the services that every scenario plans. By demand. Not in all: search." in page
    # The axis ends with the cost of chat alone, $39, and not with today's sum, $50.
    cost = page.partition("<h3>Cost</h3>")[2].partition("</figure>")[0]
    assert ">35<" in cost
    assert ">45<" not in cost


def test_a_figure_that_never_varies_has_no_chart() -> None:
    assert "<h3>Unplaced pods</h3>" not in as_html(of(TODAY, DOUBLED))
    assert "<h3>Unplaced pods</h3>" in as_html(of(TODAY, replace(DOUBLED, unplaced=3)))


def test_the_headline_says_what_the_scenarios_cost_against_the_unchanged_fleet() -> None:
    halved = answer(chat=8.0, search=30.0)

    assert headline(of(TODAY)).endswith("services cost $50.00 per hour; 4 pods run, 0 unplaced.")
    assert headline(of(TODAY, DOUBLED)).endswith("planned in both cost $19.00 more (demand × 2).")
    assert headline(of(TODAY, DOUBLED, halved)).endswith("cost $12.00 less (demand × 3) to $19.00 more (demand × 2).")
    assert "search refused" in headline(of(DOUBLED))


def test_an_axis_is_named_by_its_unit_and_leaves_room_above_the_line() -> None:
    page = as_html(of(TODAY, replace(DOUBLED, gpus_used=6.0)))

    assert ">dollars per hour<" in page
    assert ">GPUs<" in page
