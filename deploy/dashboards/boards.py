"""Dashboards of Tonnage as data: each NAME.yaml beside this file is one, in the terms of these classes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import yaml

HERE = Path(__file__).parent
Steps = tuple[tuple[float | None, str], ...]
"""(least value, colour) of each step of a scale; the first has no least value."""


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    """PromQL. A gauge of the leader is a `max`: around a change of leader two replicas may be scraped."""
    legend: str
    unit: str = ""
    """Unit of its column in a table; empty: the panel's."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    words: str
    """Description: what it shows, and what to do when it looks wrong."""
    unit: str
    """Grafana's name of it: `short` for a count, `s`, `ops` for events a second, `percentunit` for a share."""
    queries: tuple[Query, ...]
    view: Literal["timeseries", "stat", "table"] = "timeseries"
    stacked: bool = False
    steps: Steps = ()
    """Colours by value, lowest first; none: one colour. In a chart over time they are lines."""
    signed: bool = False
    """Whether values below zero mean something, so that the axis must show them."""


@dataclass(frozen=True, slots=True)
class PanelRow:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """Variable of the dashboard, whose choices are the values of a label."""

    name: str
    label: str
    query: str
    many: bool = True


@dataclass(frozen=True, slots=True)
class Board:
    title: str
    words: str
    rows: tuple[PanelRow, ...]
    variables: tuple[Variable, ...] = ()
    """Variables besides CLUSTER, which every board has."""
    name: str = ""
    """Name of the file, and of the dashboard's uid after `tonnage-`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Annotation: a line on the charts wherever the expression has a value."""

    name: str
    expr: str
    colour: str


CLUSTER = Variable("cluster", "Cluster", "label_values(tonnage_build_info, cluster)", many=False)
"""Of every board, as in kube-prometheus: the label of a Prometheus that holds several clusters. Where there is no such
label it is empty, which matches series without it."""
JOB = Variable("job", "Tonnage", 'label_values(tonnage_build_info{cluster="$cluster"}, job)', many=False)
MARKS = (
    Mark("Leader changed", 'max(changes(tonnage_lease_epoch{job="$job"}[2m])) > 0', "orange"),
    Mark(
        "Version changed",
        'count by (version) (tonnage_build_info{job="$job"} unless tonnage_build_info{job="$job"} offset 2m)',
        "blue",
    ),
)


def board_in(file: Path) -> Board:
    """Dashboard of a file, whose first variable is JOB. Raises msgspec.ValidationError."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    more = msgspec.convert(content.get("variables", ()), tuple[Variable, ...])
    return msgspec.convert({**content, "name": file.stem, "variables": (JOB, *more)}, Board)


def of_cluster(expr: str) -> str:
    """Expression for the chosen cluster alone."""
    return expr.replace('job="$job"', 'cluster="$cluster", job="$job"')


BOARDS = tuple(map(board_in, sorted(HERE.glob("*.yaml"))))
