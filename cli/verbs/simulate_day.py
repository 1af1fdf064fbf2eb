"""Simulated day of a datacenter, with progress, printed figures and a report."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cli.inputs.planning import print_notes, read
from cli.inputs.runs import check_report, report_facts, save_report
from cli.printing import progress, tables, terminal
from cluster.errors import ConfigError, Mistake, tried
from cluster.snapshot import Snapshot
from controller.brain.inline import InlineBrain, decisions_from
from controller.deciders.decisions import Decisions
from controller.settings import settings_from, with_changes
from placement.policies import POLICIES
from simulator.day.report import BaselineDay, as_html, as_picture, planning_words, summary_of
from simulator.day.simulation import HOUR_S, DayMoment, DaySettings, background_gain, baseline_day, check_day, live


def simulate_day(
    files: Sequence[str],
    settings: DaySettings,
    *,
    policy: str,
    baseline: bool,
    report: Path | None,
    output: str,
) -> None:
    """Simulate the day with progress on standard error, print its figures, and write the report.

    baseline: whether to simulate the same day with one GPU type for each service and best fit, too.
    """
    mistakes = []
    if policy not in POLICIES:
        remedy = f"choose one of {', '.join(POLICIES)}"
        mistakes.append(Mistake(f"--policy {policy}", "there is no such policy", remedy))
    tried(lambda: check_report(report), None, mistakes)
    if mistakes:
        raise ConfigError(tuple(mistakes))
    observed = read(files, sys.stdin)
    check_day(observed.snapshot, settings)
    print_notes(observed.notes)
    operators = with_changes(settings_from({}), policy=policy, plan_deadline_s=settings.deadline_s)
    decisions = replace(decisions_from(operators, awaits_pods=False), seed=settings.seed)
    started_at, began_s = datetime.now(UTC), time.perf_counter()
    moments: list[DayMoment] = []
    stopped = ""
    try:
        for moment in live(observed.snapshot, InlineBrain(decisions), settings, time.perf_counter):
            moments.append(moment)
            progress.print_hour(moment)
    except KeyboardInterrupt:
        if not moments:
            raise
        stopped = f"interrupted after {moments[-1].at_s / HOUR_S:.1f} of {settings.hours:g} hours"
    beside = _baseline(observed.snapshot, settings, decisions, moments) if baseline and not stopped else None
    if output == "json":
        record: dict[str, Any] = {"record": 1, "simulated": True, "moments": [asdict(moment) for moment in moments]}
        if beside:
            types, other = dict(beside.types), [asdict(moment) for moment in beside.day]
            record["baseline"] = {"gpu_types": types, "moments": other}
        text = json.dumps(record, indent=2) + "\n"
    else:
        columns = ("SIMULATED DAY", "TONNAGE", "BASELINE") if beside else ("SIMULATED DAY", "TONNAGE")
        text = tables.table(columns, summary_of(moments, beside))
    click.echo(planning_words(moments), err=True)
    questions, alone, beside_tasks = background_gain(observed.snapshot, decisions)
    words = f"${alone:,.2f} by plans alone, ${beside_tasks:,.2f} with background tasks ({questions} open questions)"
    click.echo(f"services at the peak, per hour: {words}", err=True)
    click.echo(text, nl=False)
    if report is not None:
        facts = report_facts(started_at, time.perf_counter() - began_s, ("seed", str(settings.seed)))
        is_picture = report.suffix == ".svg"
        save_report(report, as_picture(moments, beside) if is_picture else as_html(moments, facts, beside, stopped))
    if stopped:
        click.echo(f"stopped: {stopped}", err=True)
        click.get_current_context().exit(terminal.INTERRUPTED)


def _baseline(
    fleet: Snapshot, settings: DaySettings, decisions: Decisions, day: Sequence[DayMoment]
) -> BaselineDay | None:
    """The same day with one GPU type for each service and best fit, with a line of progress; None when interrupted."""
    click.echo(
        "the same day as a baseline: each service on one GPU type that follows its demand, pods by best fit", err=True
    )
    lost = next((moment.lost for moment in day if moment.lost), "")
    try:
        one_type, moments = baseline_day(fleet, settings, decisions, time.perf_counter, lost)
        return BaselineDay(tuple(moments), one_type.types)
    except KeyboardInterrupt:
        click.echo("the baseline was interrupted, and is left out", err=True)
        return None
