"""Expressions of dashboards and alerts for which a Prometheus has no data yet. A wrong expression raises."""

import math
import re
from collections.abc import Iterator

from tests.deploy.expressions import ALERTS, PANELS, VARIABLES, filled_in
from tests.deploy.prometheus import Prometheus


def panel_lacks(prometheus: Prometheus, name: str) -> str:
    """Empty when the panel shows something."""
    samples = prometheus.query(filled_in(PANELS[name]))
    if not samples:
        return f"{name}: no data"
    if all(math.isnan(float(sample["value"][1])) for sample in samples):
        return f"{name}: only NaN"
    return ""


def variable_lacks(prometheus: Prometheus, name: str) -> str:
    """Empty when the variable offers a choice."""
    match = re.fullmatch(r"label_values\((.+), (\w+)\)", filled_in(VARIABLES[name]))
    assert match, "a variable reads a label's values"
    selector, label = match.groups()
    return "" if prometheus.get(f"/api/v1/label/{label}/values", **{"match[]": selector}) else f"{name}: no choice"


def alert_lacks(prometheus: Prometheus, name: str) -> str:
    """Empty when what the alert watches is there, in the whole and each series of it."""
    match = re.fullmatch(r"(.+) (<|>) ([0-9.]+)", " ".join(ALERTS[name].split()))
    assert match, "an alert ends in a comparison with a number"
    prometheus.query(ALERTS[name])
    if not prometheus.query(match.group(1)):
        return f"{name}: no data for {match.group(1)}"
    metrics = set(re.findall(r"tonnage_\w+(?:\{[^}]*\})?", ALERTS[name]))
    return next((f"{name}: no series {metric}" for metric in sorted(metrics) if not prometheus.query(metric)), "")


def unanswered(prometheus: Prometheus) -> list[str]:
    """What is lacking of all panels, variables and alerts."""

    def found() -> Iterator[str]:
        yield from (panel_lacks(prometheus, name) for name in PANELS)
        yield from (variable_lacks(prometheus, name) for name in VARIABLES)
        yield from (alert_lacks(prometheus, name) for name in ALERTS)

    return [lack for lack in found() if lack]
