"""Parts of a dashboard: rows, panels, variables, and the query expressions that they share."""

from dataclasses import dataclass
from typing import Literal

View = Literal["timeseries", "stat", "table"]
Steps = tuple[tuple[float | None, str], ...]
"""(least value, colour) of each step of a scale; the first has no least value."""
ONE: Steps = ((None, "red"), (1.0, "green"), (2.0, "red"))
"""Exactly one is right."""
GAP: Steps = ((None, "green"), (0.05, "orange"), (0.2, "red"))
"""Fraction of a cost that is not proven to be needed."""

DOLLARS_PER_HOUR = "currencyUSD"
COUNT = "short"
SECONDS = "s"
SHARE = "percentunit"
PER_SECOND = "ops"


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str
    unit: str = ""
    """Unit of its column in a table; empty: the panel's."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    words: str
    """Description: what it shows, and what to do when it looks wrong."""
    unit: str
    queries: tuple[Query, ...]
    view: View = "timeseries"
    stacked: bool = False
    steps: Steps = ()
    """Colours by value, lowest first; none: one colour. In a chart over time they are lines."""
    signed: bool = False
    """Whether values below zero mean something, so that the axis must show them."""


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """Variable of the dashboard, whose choices are the values of a label."""

    name: str
    label: str
    query: str
    many: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    name: str
    """Name of the file, and of the dashboard's uid after `tonnage-`."""
    title: str
    words: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


CLUSTER = Variable("cluster", "Cluster", "label_values(tonnage_build_info, cluster)")
"""Of every board, as in kube-prometheus: the label of a Prometheus that holds several clusters. Where there is no such
label it is empty, which matches series without it."""
JOB = Variable("job", "Tonnage", 'label_values(tonnage_build_info{cluster="$cluster"}, job)')
GPU_TYPE = Variable("gpu_type", "GPU type", 'label_values(tonnage_gpus{job="$job"}, gpu_type)', many=True)
SERVICE = Variable(
    "model_service",
    "Model service",
    'label_values(tonnage_service_cost_dollars_per_hour{job="$job"}, model_service)',
    many=True,
)


@dataclass(frozen=True, slots=True)
class Mark:
    """Annotation: a line on the charts wherever the expression has a value."""

    name: str
    expr: str
    colour: str


MARKS = (
    Mark("Leader changed", 'max(changes(tonnage_lease_epoch{job="$job"}[2m])) > 0', "orange"),
    Mark(
        "Version changed",
        'count by (version) (tonnage_build_info{job="$job"} unless tonnage_build_info{job="$job"} offset 2m)',
        "blue",
    ),
)


def of_cluster(expr: str) -> str:
    """Expression for the chosen cluster alone."""
    return expr.replace('job="$job"', 'cluster="$cluster", job="$job"')


def fleet(metric: str, *by: str, where: str = "") -> str:
    """Gauge of the leader. `max`, because around a change of leader two replicas may be scraped."""
    matchers = ", ".join(m for m in ('job="$job"', where) if m)
    return f"max by ({', '.join(by)}) ({metric}{{{matchers}}})"


def rate(counter: str, *by: str, where: str = "") -> str:
    matchers = ", ".join(m for m in ('job="$job"', where) if m)
    return f"sum by ({', '.join(by)}) (rate({counter}{{{matchers}}}[$__rate_interval]))"


def quantile(q: float, histogram: str, *by: str, where: str = "") -> str:
    buckets = rate(f"{histogram}_bucket", *by, "le", where=where)
    return f"histogram_quantile({q}, {buckets})"


def quantiles(histogram: str, *by: str) -> tuple[Query, ...]:
    legend = "".join(f"{{{{{label}}}}} " for label in by)
    return tuple(
        Query(quantile(q, histogram, *by), f"{legend}{words}") for q, words in ((0.5, "median"), (0.99, "99 %"))
    )
