"""`tonnage whatif`: the plan for a fleet as it might be, for many possibilities at once."""

import sys
from pathlib import Path

import click

from cli.inputs.planning import DEFAULT_DEADLINE_S, MOST_DEADLINE_S, read, say
from cli.inputs.sweep_options import executor_of, resume_hint, sweep_options
from cli.printing.errors import FAILED


@click.command(epilog="tonnage whatif -f examples/ --demand 0.5,1,2,4 --price a100=2.5,3.67 --report out/whatif.html")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    type=click.Path(allow_dash=True),
    help="Manifest file, or folder of them; may be repeated. - reads standard input.",
)
@click.option("--demand", default="1", show_default=True, metavar="FACTOR,...", help="Times today's requests.")
@click.option("--slo", default="1", show_default=True, metavar="FACTOR,...", help="Times the promised time per token.")
@click.option(
    "--price", multiple=True, metavar="TYPE=$,...", help="Dollars per GPU and hour, spot or not; may be repeated."
)
@click.option(
    "--nodes", multiple=True, metavar="TYPE=+N,-N,...", help="Nodes of a type more or fewer; may be repeated."
)
@click.option("--policies", default="tonnage", show_default=True, help="Placement policies.")
@click.option("--seeds", default="0", show_default=True, help="Seeds of deciding, such as 0-4.")
@click.option(
    "--deadline",
    "deadline_s",
    type=click.FloatRange(min=0, min_open=True, max=MOST_DEADLINE_S),
    default=DEFAULT_DEADLINE_S,
    show_default=True,
    metavar="SECONDS",
    help="Work for each scenario, as the time it takes at most on a slow core.",
)
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Write a report with charts, too.")
@sweep_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def whatif(ctx: click.Context, /, files: tuple[str, ...], output: str, **asked: object) -> None:
    """Ask what a fleet would cost and hold under other demand, prices, promises, nodes or policies.

    Every combination of what is given is planned once; the first line is the fleet as it is. Nothing is changed
    anywhere.
    """
    from cli.inputs.scenarios import WhatIfOptions, scenarios_from
    from cli.printing.scenario_output import as_html, as_json, as_table
    from cli.verbs.whatif_run import run_scenarios
    from simulator.reports.sweep_report import write_report

    jobs, ray = asked.pop("jobs"), asked.pop("ray")
    wanted = WhatIfOptions(**asked)  # type: ignore[arg-type]  # click gives each option the type that is declared above
    question = scenarios_from(wanted)
    observed = read(files, sys.stdin)
    say(observed.notes)
    outcome = run_scenarios(
        question, wanted, observed.snapshot, executor_of(str(ray), jobs if isinstance(jobs, int) else None)
    )
    if outcome.swept.kept:
        click.echo(f"{outcome.swept.kept} scenarios were kept in {wanted.results} by an earlier sweep", err=True)
    if outcome.swept.done:
        click.echo(as_json(outcome) if output == "json" else as_table(outcome), nl=False)
        if wanted.report is not None:
            write_report(wanted.report, as_html(outcome))
            click.echo(f"report: {wanted.report}", err=True)
    if outcome.swept.stopped:
        done, total = len(outcome.swept.done), len(outcome.scenarios)
        click.echo(f"stopped ({outcome.swept.stopped}): {done} of {total} scenarios done", err=True)
        click.echo(resume_hint(wanted.results), err=True)
        ctx.exit(FAILED)
