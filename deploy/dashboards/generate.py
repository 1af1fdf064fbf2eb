"""Generator of the dashboards' JSON files: `python -m deploy.dashboards.generate`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

import msgspec
import yaml
from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

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


SOURCE = DataSourceRef("prometheus", "${datasource}")
PANEL_WIDTH, PANEL_HEIGHT, STAT_HEIGHT = 8, 8, 4
"""Panel size in a grid of 24 columns: three panels per row."""
NO_VALUE = "none, or turned off"
"""Text of a number that nothing reports: "No data" would read as a fault."""


def written(board: Board) -> str:
    """Dashboard as JSON, deterministic."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(f"tonnage-{board.name}")
        .description(board.words)
        .tags(["tonnage"])
        .editable()
        .refresh("30s")
        .time("now-6h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(dashboard.DashboardLink("Tonnage").type(DashboardLinkType.DASHBOARDS).tags(["tonnage"]).keep_time(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for mark in MARKS:
        drawn = dashboard.AnnotationQuery().name(mark.name).datasource(SOURCE).enable(True).icon_color(mark.colour)
        made = made.annotation(drawn.expr(of_cluster(mark.expr)))
    for variable in (CLUSTER, *board.variables):
        asked = (
            dashboard.QueryVariable(variable.name)
            .label(variable.label)
            .datasource(SOURCE)
            .query({"query": of_cluster(variable.query), "refId": variable.name})
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
        if variable.many:
            everything = VariableOption(selected=True, text="All", value="$__all")
            asked = asked.multi(True).include_all(True).all_value(".*").current(everything)
        made = made.with_variable(asked)
    numbers = count(1)
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            made = made.with_panel(_panel(panel, next(numbers)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _panel(panel: Panel, number: int) -> stat.Panel | table.Panel | timeseries.Panel:
    made = _view(panel).id(number).title(panel.title).description(panel.words).unit(panel.unit).datasource(SOURCE)
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        target = prometheus.Dataquery().ref_id(letter).expr(of_cluster(query.expr)).datasource(SOURCE)
        target = target.legend_format(query.legend)
        if panel.view == "table":
            target = target.format(PromQueryFormat.TABLE)
        made = made.with_target(target.range() if panel.view == "timeseries" else target.instant())
    if panel.steps:
        colours = [Threshold(value=least, color=colour) for least, colour in panel.steps]
        made = made.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(colours))
    return made.no_value(NO_VALUE)


def _view(panel: Panel) -> stat.Panel | table.Panel | timeseries.Panel:
    match panel.view:
        case "stat":
            return stat.Panel().span(PANEL_WIDTH).height(STAT_HEIGHT).graph_mode(BigValueGraphMode.NONE)
        case "table":
            return _table(panel.queries)
    made = (
        timeseries.Panel()
        .span(PANEL_WIDTH)
        .height(PANEL_HEIGHT)
        .show_points(VisibilityMode.NEVER)
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    if not panel.signed:
        made = made.min(0)
    if panel.stacked:
        made = made.fill_opacity(30).stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    if panel.steps:
        made = made.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED))
    return made


def _table(queries: Sequence[Query]) -> table.Panel:
    """One row for each set of labels, one column for each query under its legend."""
    made = table.Panel().span(2 * PANEL_WIDTH).height(PANEL_HEIGHT)
    made = made.with_transformation(DataTransformerConfig("merge", options={}))
    names = {f"Value #{letter}": each.legend for letter, each in zip("ABCDEFGH", queries, strict=False)}
    if len(queries) == 1:
        names = {"Value": queries[0].legend}
    renamed = {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": names}
    made = made.with_transformation(DataTransformerConfig("organize", options=renamed))
    for query in queries:
        if query.unit:
            made = made.override_by_name(query.legend, [DynamicConfigValue("unit", query.unit)])
    return made


def generated() -> dict[Path, str]:
    """All files that this module writes, with their texts."""
    return {HERE / f"{board.name}.json": written(board) for board in BOARDS}


def main() -> None:
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
