"""`tonnage whatif`: plans for many variations of a fleet at once."""

import sys
from pathlib import Path

import click

from cli.inputs.planning import DEFAULT_DEADLINE_S, complete_policies, deadline, print_notes, read
from cli.inputs.report_file import save_report
from cli.inputs.sweep_options import executor_of, resume_hint, sweep_options
from cli.printing.errors import stopped_status


@click.command(epilog="tonnage whatif -f examples/ --demand 0.5,1,2,4 --price a100=2.5,3.67 --report out/whatif.html")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    type=click.Path(allow_dash=True),
    help="Manifest file or folder; may be repeated. - reads standard input.",
)
@click.option(
    "--demand", default="1", show_default=True, metavar="FACTOR,...", help="Multiples of today's request rate."
)
@click.option(
    "--slo", default="1", show_default=True, metavar="FACTOR,...", help="Multiples of the SLO's time per token."
)
@click.option(
    "--price",
    multiple=True,
    metavar="TYPE=$,...",
    help="Dollars per GPU and hour, both spot and on demand; may be repeated.",
)
@click.option(
    "--nodes", multiple=True, metavar="TYPE=+N,-N,...", help="Nodes to add or remove, by GPU type; may be repeated."
)
@click.option(
    "--policies", default="tonnage", show_default=True, shell_complete=complete_policies, help="Placement policies."
)
@click.option("--seeds", default="0", show_default=True, help="Seeds of the planner, such as 0-4.")
@click.option(
    "--deadline",
    "deadline_s",
    type=deadline,
    default=DEFAULT_DEADLINE_S,
    show_default=True,
    metavar="DURATION",
    help="Work budget of each scenario, as the longest time it takes on a slow core.",
)
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Write a report with charts, too.")
@sweep_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def whatif(ctx: click.Context, /, files: tuple[str, ...], output: str, **given: object) -> None:
    """Compare cost and capacity of a fleet under other demand, prices, SLOs, nodes or policies.

    Plans every combination of the given values once; the first line is the fleet unchanged. Read-only.
    """
    from cli.inputs.scenarios import WhatIfOptions, scenarios_from
    from cli.printing.scenario_output import as_html, as_json, as_table
    from cli.verbs.whatif_run import run_scenarios

    jobs, ray = given.pop("jobs"), given.pop("ray")
    options = WhatIfOptions(**given)  # type: ignore[arg-type]  # click gives each option the type that is declared above
    scenarios = scenarios_from(options)
    observed = read(files, sys.stdin)
    print_notes(observed.notes)
    result = run_scenarios(
        scenarios, options, observed.snapshot, executor_of(str(ray), jobs if isinstance(jobs, int) else None)
    )
    if result.swept.kept:
        click.echo(f"{result.swept.kept} scenarios were kept from an earlier sweep in {options.results}", err=True)
    if result.swept.done:
        click.echo(as_json(result) if output == "json" else as_table(result), nl=False)
        if options.report is not None:
            save_report(options.report, as_html(result))
    if result.swept.stopped:
        done, total = len(result.swept.done), len(result.scenarios)
        click.echo(f"stopped ({result.swept.stopped}): {done} of {total} scenarios done", err=True)
        click.echo(resume_hint(options.results), err=True)
        ctx.exit(stopped_status(result.swept.stopped))
