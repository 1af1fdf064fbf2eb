"""All expressions of the dashboards and alerts, with a value for every variable that a reader may choose."""

from pathlib import Path

import yaml

from deploy.dashboards.generate import BOARDS, MARKS, of_cluster

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "alerts" / "tonnage.rules.yaml"

ALERTS = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
PANELS = {
    f"{board.name}: {panel.title}: {query.legend}": of_cluster(query.expr)
    for board in BOARDS
    for row in board.rows
    for panel in row.panels
    for query in panel.queries
}
VARIABLES = {
    f"{board.name}: {variable.name}": of_cluster(variable.query) for board in BOARDS for variable in board.variables
}
"""Those of a Prometheus with one cluster; it has no label for it."""
ANNOTATIONS = {mark.name: of_cluster(mark.expr) for mark in MARKS}

# A scrape every 200 ms for some seconds: the windows are as long as the whole of it.
CHOSEN = {
    "$cluster": "",
    "$job": "tonnage",
    "$gpu_type": ".*",
    "$model_service": ".*",
    "$power_domain": ".*",
    "$policy": ".*",
    "$__rate_interval": "5m",
}


def filled_in(expr: str) -> str:
    for name, choice in CHOSEN.items():
        expr = expr.replace(name, choice)
    return expr
