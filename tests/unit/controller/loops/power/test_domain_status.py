"""Status of a PowerDomain: its content, when it is written, and the Events that result."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.errors import Mistake
from controller.api.power_domain import PowerDomainStatus
from controller.loops.power.domain_facts import DomainFacts, HeldBackDevice, Suspect
from controller.loops.power.domain_status import StatusInputs, events_of_change, status_after

FINE = DomainFacts(
    draw_w=2400.0,
    worst_w=2900.0,
    budget_w=3200.0,
    headroom_w=700.0,
    devices=4,
    managed=4,
    stale=0,
    suspects=0,
    held=0,
    unheard_nodes=(),
    culprits=(),
)
AT_S = 1_700_000_000.0
LIAR = Suspect("g1", "n1", "OverCap")
METER = Suspect("meter", "n1", "MeterShowsMore")


def inputs(**facts: Any) -> StatusInputs:
    return StatusInputs(generation=3, facts=replace(FINE, **facts))


def after(
    before: dict[str, Any], what: StatusInputs, at_s: float = AT_S, *, may_refresh: bool = True
) -> dict[str, Any]:
    return status_after(before, what, at_s, may_refresh=may_refresh)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_a_domain_that_fares_well_is_ready_and_not_degraded() -> None:
    status = after({}, inputs())

    assert conditions(status) == {
        "Accepted": ("True", "Valid"),
        "Ready": ("True", "BudgetKept"),
        "Degraded": ("False", "AsAsked"),
    }
    assert status["observedGeneration"] == 3
    assert (status["drawWatts"], status["headroomWatts"], status["cappedShare"]) == (2400.0, 700.0, 0.0)


@pytest.mark.parametrize(
    ("facts", "ready", "degraded"),
    [
        ({"stale": 2}, "DevicesSilent", "DevicesSilent"),
        ({"stale": 2, "unheard_nodes": ("n1",)}, "AgentsUnheard", "DevicesSilent"),
        ({"worst_w": 3300.0}, "OverBudget", "AsAsked"),
        ({"floors": "too much"}, "FloorsOverBudget", "FloorsOverBudget"),
        ({"suspects": 1, "culprits": (LIAR,)}, "BudgetKept", "DevicesDisobey"),
        ({"is_braked": True}, "BudgetKept", "BrakeHolds"),
        ({"is_braked": True, "suspects": 1, "culprits": (LIAR,)}, "BudgetKept", "BrakeHolds"),
        ({"is_braked": True, "floors": "too much"}, "FloorsOverBudget", "FloorsOverBudget"),
        ({"meters": (METER,), "unaccounted_w": 400.0}, "BudgetKept", "MetersDisagree"),
        ({"suspects": 1, "culprits": (LIAR,), "meters": (METER,)}, "BudgetKept", "DevicesDisobey"),
    ],
)
def test_what_is_wrong_is_the_reason(facts: dict[str, Any], ready: str, degraded: str) -> None:
    found = conditions(after({}, inputs(**facts)))

    assert (found["Ready"][1], found["Degraded"][1]) == (ready, degraded)


def test_a_meter_that_shows_more_is_told_with_the_watts_that_are_kept_free() -> None:
    status = after({}, inputs(meters=(METER,), unaccounted_w=400.0))
    degraded = next(each for each in status["conditions"] if each["type"] == "Degraded")

    assert degraded["message"] == (
        "the meter on n1, which shows more than everything known there can draw: look for devices that report too "
        "little, and for other loads; the budget is reduced by 400 W"
    )
    assert status["culprits"] == [{"device": "meter", "node": "n1", "reason": "MeterShowsMore"}]


def test_a_mistaken_domain_says_so_and_the_others_that_those_before_stay() -> None:
    wrong = replace(inputs(), mistaken=(Mistake("PowerDomain/row, spec.feeds", "draws through itself"),))
    others = replace(inputs(), unusable="rack: draws through itself")

    assert conditions(after({}, wrong))["Accepted"] == ("False", "BadInput")
    assert conditions(after({}, others))["Ready"] == ("False", "NotUsed")
    assert after({}, others)["devices"] == 4


def test_ripples_are_not_written() -> None:
    status = after({}, inputs())

    # 2 % of 3200 W are 64 W.
    assert after(status, inputs(draw_w=2460.0), AT_S + 60) == status
    assert after(status, inputs(draw_w=2470.0), AT_S + 60)["drawWatts"] == 2470.0


def test_figures_alone_wait_for_their_time_and_conditions_do_not() -> None:
    status = after({}, inputs())

    assert after(status, inputs(draw_w=100.0), may_refresh=False) == status
    assert conditions(after(status, inputs(stale=1), may_refresh=False))["Ready"][0] == "False"
    assert after(status, inputs(budget_w=3000.0), may_refresh=False)["budgetWatts"] == 3000.0


def test_the_first_device_that_is_held_back_is_told() -> None:
    status = after({}, inputs())
    one = HeldBackDevice("g1", "n1", "low", 400.0, 640.0, "row", AT_S, 0.123456)
    found = after(status, replace(inputs(held=1), held=(one,)))

    assert found["heldBackDevices"] == 1
    assert found["heldBack"][0]["limitedBy"] == "row"
    assert found["heldBack"][0]["slowerShare"] == 0.123


def test_a_condition_that_changes_is_one_event_and_one_that_stays_is_none() -> None:
    well, ill = after({}, inputs()), after(after({}, inputs()), inputs(stale=2))

    assert [(each.reason.code, each.is_warning) for each in events_of_change("row", well, ill)] == [
        ("DevicesSilent", True),
        ("DevicesSilent", True),
    ]
    assert list(events_of_change("row", ill, ill)) == []
    assert [each.is_warning for each in events_of_change("row", ill, well)] == [False, False]
    assert list(events_of_change("row", {}, well)) == []


def test_a_device_that_is_named_anew_is_an_event_and_a_silent_one_is_none() -> None:
    well = after({}, inputs())
    liar = after(well, inputs(suspects=1, culprits=(LIAR,)))
    silent = after(well, inputs(stale=1, culprits=(Suspect("g2", "n1", "Stale"),)))

    assert [each.action for each in events_of_change("row", well, liar)] == ["Keeping", "Watching"]
    assert "Watching" not in [each.action for each in events_of_change("row", well, silent)]


def test_a_status_that_somebody_else_wrote_is_made_anew() -> None:
    assert after({"conditions": 7}, inputs()) == after({}, inputs())


def test_what_is_told_can_be_read_back() -> None:
    status = after({}, inputs())

    assert PowerDomainStatus.model_validate(status).plain() == status
