"""`tonnage simulate`: simulations of a fleet: placement of arriving pods, a day, power, scaling."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.inputs.machine import machine_description
from cli.inputs.planning import complete_policies
from cli.inputs.report_file import save_report
from cli.inputs.sweep_options import executor_of, resume_hint, sweep_options
from cli.printing.errors import stopped_status
from cli.printing.whole_help import Group
from cli.verbs.simulate_power import power
from cli.verbs.simulate_scaling import scaling

if TYPE_CHECKING:  # numpy and its users are imported only after the options were checked
    from cli.inputs.contest import ContestOptions


@click.group(cls=Group)
def simulate() -> None:
    """Simulate a datacenter: placement of arriving pods, a day, power, scaling."""


simulate.add_command(power)
simulate.add_command(scaling)


@simulate.command()
@click.option("--nodes", type=click.Path(path_type=Path), metavar="CSV", help="Node list of a fleet.")
@click.option(
    "--pods", type=click.Path(path_type=Path), multiple=True, metavar="CSV", help="Pod list; may be repeated."
)
@click.option(
    "--generate",
    default="",
    metavar="NODES,...",
    help="Generate a fleet with this number of nodes, and its pods; several sizes give several traces.",
)
@click.option(
    "--mix",
    default="default",
    show_default=True,
    help="Generated pods: default, gpuspec33, multigpu20, gpushare100, or several of them.",
)
@click.option(
    "--policies",
    default="bestfit,fgd,tonnage",
    show_default=True,
    shell_complete=complete_policies,
    help="Policies to compare.",
)
@click.option("--seeds", default="42-44", show_default=True, help="Orders of arrival, such as 42-51 or 1,5,9.")
@click.option("--rename-nodes", is_flag=True, help="Shuffle the nodes' names; placements should not depend on them.")
@click.option(
    "--move-share",
    type=float,
    default=0.0,
    metavar="SHARE",
    help="Largest fraction of pods to move to make room for others, such as 0.02. [default: 0]",
)
@click.option(
    "--prices",
    default="",
    metavar="TYPE=$,...",
    help="Dollars per GPU and hour. [default: illustrative prices of the openb types]",
)
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Write a report with charts, too.")
@sweep_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def placement(ctx: click.Context, /, jobs: int | None, ray: str, output: str, **given: object) -> None:
    """Replay pods that arrive one by one, under several placement policies.

    Pods request up to 130 % of the fleet's GPUs; a pod that fits nowhere is dropped. Reports the fraction of GPUs that
    each policy allocated, the fragmentation of the rest, and the time per decision.

    \b
    tonnage simulate placement --generate 300 --report out/placement.html
    tonnage simulate placement --nodes nodes.csv --pods pods.csv --seeds 42-51 -o json
    tonnage simulate placement --generate 1000,5000 --seeds 1-50 --ray head:6379 --results out/runs
    """
    from cli.inputs.contest import ContestOptions, contest_from
    from cli.printing.placement_output import as_html, as_json, as_table
    from cli.verbs.simulate_placement import run_contest

    options = ContestOptions(**given)  # type: ignore[arg-type]  # click gives each option the type that is declared above
    check_sources(options)
    result = run_contest(contest_from(options), executor_of(ray, jobs), options.results)
    if result.swept.kept:
        click.echo(f"{result.swept.kept} replays were kept from an earlier sweep in {options.results}", err=True)
    if result.swept.done:
        click.echo(as_json(result) if output == "json" else as_table(result), nl=False)
        if options.report is not None:
            save_report(options.report, as_html(result, command=_command(), machine=machine_description()))
    if result.swept.stopped:
        total = len(result.contest.runs)
        click.echo(f"stopped ({result.swept.stopped}): {len(result.swept.done)} of {total} replays done", err=True)
        click.echo(resume_hint(options.results), err=True)
        ctx.exit(stopped_status(result.swept.stopped))


def check_sources(options: "ContestOptions") -> None:
    """Raises click.UsageError unless the fleet is either read or generated."""
    if options.generate and (options.nodes or options.pods):
        raise click.UsageError("give either --generate, or --nodes and --pods")
    if not options.generate and not (options.nodes and options.pods):
        raise click.UsageError("give a fleet: --nodes CSV and --pods CSV, or --generate NODES")


def _command() -> str:
    """Command line, quoted for a shell."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


@simulate.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    type=click.Path(allow_dash=True),
    help="Manifest file, or folder of them; may be repeated. - reads standard input.",
)
@click.option(
    "--hours",
    type=click.FloatRange(0, 24 * 7, min_open=True),
    default=24.0,
    show_default=True,
    help="Simulated hours.",
)
@click.option(
    "--step",
    "step_s",
    type=click.FloatRange(1, 3600),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Simulated time from one cycle to the next.",
)
@click.option(
    "--load",
    type=click.FloatRange(0, 10, min_open=True),
    default=0.8,
    show_default=True,
    help="GPUs that jobs request at the peak, as a fraction of the fleet (of half of it if there are services).",
)
@click.option(
    "--job-hours", type=click.FloatRange(0.01, 1000), default=2.0, show_default=True, help="Median duration of a job."
)
@click.option("--lose", default="", metavar="NODE", help="Node that is lost. [default: the busiest]")
@click.option(
    "--lose-hour",
    type=click.FloatRange(min=-1),
    default=13.0,
    show_default=True,
    metavar="HOUR",
    help="Hour at which the node is lost, for three hours; -1: never.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of arrivals and durations.")
@click.option(
    "--policy", default="tonnage", show_default=True, shell_complete=complete_policies, help="Placement policy."
)
@click.option(
    "--polish",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Consolidate nodes between plans where that pays; the largest fraction of pods to move at a time.",
)
@click.option(
    "--brain",
    type=click.Choice(["inline", "embedded"]),
    default="inline",
    show_default=True,
    help="Where to plan: in this process, or on a Ray started on this machine.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=0.0,
    show_default=True,
    help="Shortest duration on a terminal, so that the day can be watched.",
)
@click.option(
    "--baseline/--no-baseline",
    default=True,
    show_default=True,
    help="Simulate the same day with one GPU type for each service that follows its demand, and pods by best fit.",
)
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Write a report with charts.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def day(
    files: tuple[str, ...],
    lose_hour: float,
    policy: str,
    polish: float,
    brain: Literal["inline", "embedded"],
    seconds: float,
    baseline: bool,
    report: Path | None,
    output: str,
    **options: object,
) -> None:
    """Simulate a day with the controller's own loop: jobs come and go, demand varies, a node is lost.

    The fleet, its services and the kinds of jobs come from the manifests. Standard output has the day's figures at the
    end.

    \b
    tonnage simulate day -f examples/ --seconds 60 --report out/day.html
    """
    from cli.verbs.simulate_day import simulate_day
    from simulator.day.simulation import DaySettings

    settings = DaySettings(lose_hour=None if lose_hour < 0 else lose_hour, **options)  # type: ignore[arg-type]
    simulate_day(
        files,
        settings,
        policy=policy,
        polish=polish,
        brain=brain,
        seconds=seconds,
        baseline=baseline,
        report=report,
        output=output,
        command=_command(),
    )
