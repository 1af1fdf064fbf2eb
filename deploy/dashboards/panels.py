"""The parts of a dashboard: rows, panels, choices at the top, and the shapes that their expressions share."""

from dataclasses import dataclass
from typing import Literal

View = Literal["timeseries", "stat"]

DOLLARS_PER_HOUR = "currencyUSD"
COUNT = "short"
SECONDS = "s"
SHARE = "percentunit"
PER_SECOND = "ops"


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    words: str
    """What a reader learns from it, and what to do when it looks odd."""
    unit: str
    queries: tuple[Query, ...]
    view: View = "timeseries"
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of the dashboard, filled from a label's values."""

    name: str
    label: str
    query: str
    many: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    name: str
    """Of the file, and of the dashboard's uid after `tonnage-`."""
    title: str
    words: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


JOB = Variable("job", "Tonnage", "label_values(tonnage_build_info, job)")
GPU_TYPE = Variable("gpu_type", "GPU type", 'label_values(tonnage_gpus{job="$job"}, gpu_type)', many=True)
SERVICE = Variable(
    "model_service",
    "Model service",
    'label_values(tonnage_service_cost_dollars_per_hour{job="$job"}, model_service)',
    many=True,
)


def fleet(metric: str, *by: str, where: str = "") -> str:
    """The gauge as the leader tells it. `max` first: around a change of leader two replicas may be scraped."""
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
