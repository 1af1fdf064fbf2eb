"""Generator of the dashboards' JSON files: `python -m deploy.dashboards.generate`."""

import json
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
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
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)

from deploy.dashboards.boards import BOARDS
from deploy.dashboards.panels import Board, Panel, Steps, Variable

HERE = Path(__file__).parent

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
    for variable in board.variables:
        made = made.with_variable(_variable(variable))
    numbers = count(1)
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            made = made.with_panel(_panel(panel, next(numbers)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(variable: Variable) -> dashboard.QueryVariable:
    made = (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(SOURCE)
        .query({"query": variable.query, "refId": variable.name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )
    if variable.many:
        everything = VariableOption(selected=True, text="All", value="$__all")
        made = made.multi(True).include_all(True).all_value(".*").current(everything)
    return made


def _panel(panel: Panel, number: int) -> stat.Panel | timeseries.Panel:
    made = _stat(panel.steps) if panel.view == "stat" else _timeseries(stacked=panel.stacked, signed=panel.signed)
    made = made.id(number).title(panel.title).description(panel.words).unit(panel.unit).datasource(SOURCE)
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        target = prometheus.Dataquery().ref_id(letter).expr(query.expr).legend_format(query.legend).datasource(SOURCE)
        made = made.with_target(target.instant() if panel.view == "stat" else target.range())
    return made


def _stat(steps: Steps) -> stat.Panel:
    made = stat.Panel().span(PANEL_WIDTH).height(STAT_HEIGHT).graph_mode(BigValueGraphMode.NONE).no_value(NO_VALUE)
    if steps:
        colours = [Threshold(value=least, color=colour) for least, colour in steps]
        made = made.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(colours))
    return made


def _timeseries(*, stacked: bool, signed: bool) -> timeseries.Panel:
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
    if not signed:
        made = made.min(0)
    if stacked:
        made = made.fill_opacity(30).stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    return made


def generated() -> dict[Path, str]:
    """All files that this module writes, with their texts."""
    return {HERE / f"{board.name}.json": written(board) for board in BOARDS}


def main() -> None:
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
