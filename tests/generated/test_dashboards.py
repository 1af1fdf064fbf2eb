"""Dashboards are up to date, and every panel names its content, unit and source."""

import json
import re
from itertools import combinations
from typing import Any

import pytest

from deploy.dashboards.generate import BOARDS, HERE, generated, written

LOADED = {board.name: json.loads(written(board)) for board in BOARDS}
PANELS = {
    f"{name}: {panel['title']}": panel
    for name, board in LOADED.items()
    for panel in board["panels"]
    if panel["type"] != "row"
}


def test_the_files_are_what_would_be_generated_now() -> None:
    found = {path: path.read_text(encoding="utf-8") for path in HERE.glob("*.json")}

    assert found == generated(), "the dashboards changed: run `make dashboards`"


@pytest.mark.parametrize("name", LOADED)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(name: str) -> None:
    panels = LOADED[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_says_what_it_shows_in_which_unit_from_the_chosen_source(name: str) -> None:
    panel: dict[str, Any] = PANELS[name]
    assert panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        assert target["legendFormat"]
        assert 'job="$job"' in target["expr"]
        assert target["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("name", PANELS)
def test_counters_are_read_as_rates_over_the_interval_of_the_screen(name: str) -> None:
    for target in PANELS[name]["targets"]:
        counters = re.findall(r"\b\w+_(?:total|bucket)\b", target["expr"])
        assert len(counters) == target["expr"].count("rate(") == target["expr"].count("[$__rate_interval]")


def test_every_number_says_what_it_means_that_there_is_none_and_one_leader_is_green() -> None:
    made = [panel for board in BOARDS for panel in json.loads(written(board))["panels"] if panel["type"] == "stat"]
    leaders = next(panel for panel in made if panel["title"] == "Leaders")

    assert all(panel["fieldConfig"]["defaults"]["noValue"] for panel in made)
    steps = leaders["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(step["value"], step["color"]) for step in steps] == [(None, "red"), (1.0, "green"), (2.0, "red")]


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_says_what_it_means_that_there_is_nothing(name: str) -> None:
    assert PANELS[name]["fieldConfig"]["defaults"]["noValue"]


@pytest.mark.parametrize("name", LOADED)
def test_a_board_is_of_one_cluster_and_marks_changes_of_leader_and_version(name: str) -> None:
    board = LOADED[name]
    assert [variable["name"] for variable in board["templating"]["list"]][:3] == ["datasource", "cluster", "job"]
    assert {mark["name"] for mark in board["annotations"]["list"]} == {"Leader changed", "Version changed"}
    asked = [mark["expr"] for mark in board["annotations"]["list"]]
    asked += [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert all(expr.count('cluster="$cluster", job="$job"') == expr.count('job="$job"') > 0 for expr in asked)


def test_ages_and_gaps_have_limits_and_what_is_many_figures_is_a_table() -> None:
    made = {title.partition(": ")[2]: panel for title, panel in PANELS.items()}
    limited = {title for title, panel in made.items() if len(_steps(panel)) > 1}
    table = made["Services now"]

    assert limited >= {
        "Leaders",
        "Since the last cycle",
        "Since the last turn",
        "Duration of a turn",
        "Gap of the mixes",
    }
    assert {title for title, panel in made.items() if panel["type"] == "table"} == {
        "Services now",
        "Why workloads wait now",
    }
    renamed = table["transformations"][1]["options"]["renameByName"]
    columns = ("wanted", "running", "$ per hour", "bound", "gap", "draw", "J per token")
    assert renamed == dict(zip((f"Value #{letter}" for letter in "ABCDEFG"), columns, strict=True))
    assert all(target["format"] == "table" and target["instant"] for target in table["targets"])


def _steps(panel: dict[str, Any]) -> list[Any]:
    steps: list[Any] = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    return steps


def test_a_budget_that_is_short_is_seen_below_zero() -> None:
    power = next(board for board in BOARDS if board.name == "power")
    panels = {panel["title"]: panel for panel in json.loads(written(power))["panels"]}

    assert "min" not in panels["Headroom"]["fieldConfig"]["defaults"]
    assert panels["Draw"]["fieldConfig"]["defaults"]["min"] == 0
