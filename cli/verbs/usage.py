"""`tonnage usage`: who held which devices how long, at which price, used or idle, from Prometheus."""

import csv
import io
import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import click

from cli.inputs.options import setting
from cluster.errors import ConfigError, Mistake

KEYS = ("team", "namespace", "gpu_type", "state")
FOCUS = (
    *("ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ServiceCategory", "ServiceName", "SubAccountId"),
    *("SubAccountName", "ResourceType", "SkuId", "ConsumedQuantity", "ConsumedUnit", "PricingQuantity", "PricingUnit"),
    *("ListUnitPrice", "ListCost", "EffectiveCost", "BilledCost", "BillingCurrency", "x_Team"),
)
"""Columns of the FinOps Open Cost and Usage Specification 1.2, and one of ours. The costs are those of the GPUTypes."""
Row = dict[str, float | str]


@click.command(epilog="tonnage usage --since 7d --prometheus http://prometheus:9090")
@setting("--since", "24h", "Length of the time up to now, such as 90m, 24h or 7d.")
@click.option("--prometheus", required=True, metavar="URL|FILE", help="Server that scrapes the operator.")
@setting("--output", "table", "table, json, or csv with the columns of FOCUS.", click.Choice(("table", "json", "csv")))
def usage(since: str, prometheus: str, output: str) -> None:
    """Show which teams and namespaces held how many device-hours of each type, and what they cost.

    Figures are those of the counters tonnage_device_seconds_total and tonnage_device_dollars_total: what the leading
    operator saw from cycle to cycle. Idle devices belong to no namespace.
    """
    end_s, length_s = time.time(), _seconds(since)
    found = {each: increases(prometheus, each, length_s, end_s) for each in ("seconds", "dollars")}
    rows = rows_of(found["seconds"], found["dollars"])
    if output == "json":
        click.echo(json.dumps({"since": since, "usage": rows}, indent=2))
    elif output == "csv":
        click.echo(as_focus(rows, end_s - length_s, end_s), nl=False)
    else:
        click.echo(as_table(rows), nl=False)


def _seconds(since: str) -> float:
    unit = {"m": 60.0, "h": 3600.0, "d": 86_400.0}.get(since[-1:])
    if unit is None or not since[:-1].isdigit() or int(since[:-1]) == 0:
        raise ConfigError(Mistake("--since", f"is {since!r}", "write a number with m, h or d, such as 24h"))
    return int(since[:-1]) * unit


def increases(place: str, unit: str, length_s: float, at_s: float) -> dict[tuple[str, ...], float]:
    """Increase of a counter by team, namespace, GPU type and state."""
    from cli.verbs.advise import asked_of

    by = ", ".join(KEYS)
    query = f"sum by ({by}) (increase(tonnage_device_{unit}_total[{length_s:.0f}s]))"
    return {
        tuple(each.labels.get(key, "") for key in KEYS): each.points[-1][1] for each in asked_of(place, query, at_s)
    }


def rows_of(seconds: Mapping[tuple[str, ...], float], dollars: Mapping[tuple[str, ...], float]) -> list[Row]:
    """One row for each account, sorted, without those of nothing."""
    return [
        {**dict(zip(KEYS, key, strict=True)), "device_hours": seconds[key] / 3600, "dollars": dollars.get(key, 0.0)}
        for key in sorted(seconds)
        if seconds[key] > 0
    ]


def as_table(rows: Iterable[Row]) -> str:
    from cli.printing.columns import columns

    cells = [
        [*(str(row[key]) or "-" for key in KEYS), f"{row['device_hours']:.2f}", f"{row['dollars']:.2f}"] for row in rows
    ]
    return columns(("TEAM", "NAMESPACE", "GPU TYPE", "STATE", "DEVICE HOURS", "$"), cells)


def as_focus(rows: Iterable[Row], start_s: float, end_s: float) -> str:
    """The rows as CSV with columns of FOCUS."""
    start, end = (datetime.fromtimestamp(each, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for each in (start_s, end_s))
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(FOCUS)
    for row in rows:
        hours, cost = f"{row['device_hours']:.6f}", f"{row['dollars']:.6f}"
        price = f"{float(row['dollars']) / float(row['device_hours']):.6f}"
        name = row["namespace"] or f"({row['state']})"
        what = (start, end, "Usage", "Compute", "Tonnage", name, name, "GPU", row["gpu_type"])
        lines.writerow((*what, hours, "Hours", hours, "Hours", price, cost, cost, cost, "USD", row["team"]))
    return text.getvalue()
