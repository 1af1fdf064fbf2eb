"""Replay of a load history with its options, printed figures and report; two verbs share it."""

import json
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.machine import machine_description
from cli.inputs.report_file import check_report, save_report
from cli.printing.tables import table
from cluster.errors import ConfigError, Mistake
from cluster.version import VERSION

if TYPE_CHECKING:  # numpy and its users are imported only after the options were checked
    from simulator.scaling.study import Compared
    from simulator.scaling.traces import LoadTrace

Command = Callable[..., None]

_OPTIONS = (
    click.option(
        "--lead",
        "lead_min",
        type=click.FloatRange(0, 240, min_open=True),
        default=5.0,
        show_default=True,
        metavar="MINUTES",
        help="Time from ordering a replica to its readiness.",
    ),
    click.option(
        "--policy",
        "policies",
        default="tonnage,hpa,kpa,point,fixed,oracle",
        show_default=True,
        help="Policies, the one that charts look at first: also newsvendor.",
    ),
    click.option(
        "--replica-load",
        type=click.FloatRange(0, min_open=True),
        metavar="LOAD",
        help="Load that one replica serves, in the history's unit. [default: 40 replicas at the peak]",
    ),
    click.option(
        "--price",
        "price_per_hour",
        type=click.FloatRange(0, min_open=True),
        default=1.0,
        show_default=True,
        metavar="DOLLARS",
        help="Price of one replica and hour.",
    ),
    click.option(
        "--miss-cost",
        type=click.FloatRange(0, min_open=True),
        default=99.0,
        show_default=True,
        help="Cost of missed load, as a multiple of the price of the capacity that would have served it.",
    ),
    click.option(
        "--train-days",
        type=click.IntRange(1),
        default=7,
        show_default=True,
        help="Days before the replay; fewer where there are not as many.",
    ),
    click.option("--days", type=click.IntRange(1), default=7, show_default=True, help="Days of the replay."),
    click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Write a report with charts."),
    click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True),
)


def replay_options(command: Command) -> Command:
    """Decorator of commands that replay a history."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def show_replay(
    load: "LoadTrace",
    *,
    made_by: str,
    lead_min: float,
    policies: str,
    replica_load: float | None,
    price_per_hour: float,
    miss_cost: float,
    train_days: int,
    days: int,
    report: Path | None,
    output: str,
) -> None:
    """Replay the history, print the figures, and write the report."""
    from cluster.autoscaling import ScalingObjective
    from simulator.scaling.replay import scenario_of
    from simulator.scaling.report import COLUMNS, as_html, rows_of
    from simulator.scaling.study import check_policies, compared

    names = tuple(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    check_policies(names)
    if not names:
        raise ConfigError(Mistake("--policy", "names no policy"))
    check_report(report)
    started_at, began = datetime.now(UTC), perf_counter()
    scenario = scenario_of(load, train_days, days, replica_load)
    result = compared(scenario, names, 60.0 * lead_min, ScalingObjective(price_per_hour, miss_cost))
    if output == "json":
        click.echo(json.dumps(record_of_all(result), indent=2))
    else:
        click.echo(table(tuple(name.upper() for name in COLUMNS), rows_of(result)), nl=False)
    if report is not None:
        facts = (
            ("ran", f"{started_at:%Y-%m-%d %H:%M} UTC, {perf_counter() - began:.1f} s"),
            ("command", shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])),
            ("machine", machine_description()),
            ("version", f"Tonnage {VERSION}"),
        )
        save_report(report, as_html(result, facts, made_by))


def record_of_all(result: "Compared") -> dict[str, Any]:
    """Figures of all policies for machines; `record` is the version of this form."""
    from dataclasses import asdict

    return {
        "record": 1,
        "simulated": True,
        "trace": result.scenario.trace,
        "lead_min": result.lead_s / 60.0,
        "replica_load": result.scenario.unit,
        "steps": len(result.scenario.load),
        "policies": [
            {
                "policy": each.policy,
                **asdict(each.score),
                "j": each.score.j,
                "replica_dollars": result.dollars(each).replicas,
                "missed_dollars": result.dollars(each).missed,
            }
            for each in result.results
        ],
    }
