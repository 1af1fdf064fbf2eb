"""`tonnage simulate`: replay what arrives at a pretend fleet."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cli.inputs.machine import machine_in_words
from cli.inputs.sweep_options import executor_of, resume_hint, sweep_options
from cli.verbs.simulate_power import power

if TYPE_CHECKING:  # numpy and what stands on it are imported once the options are known to be right
    from cli.inputs.contest import ContestOptions

INCOMPLETE = 1


@click.group()
def simulate() -> None:
    """Replay what arrives on a pretend datacenter, under several policies."""


simulate.add_command(power)


@simulate.command()
@click.option("--nodes", type=click.Path(path_type=Path), metavar="CSV", help="Node list of a fleet.")
@click.option(
    "--pods", type=click.Path(path_type=Path), multiple=True, metavar="CSV", help="Pod list; may be repeated."
)
@click.option(
    "--generate",
    default="",
    metavar="NODES,...",
    help="Make up a fleet of so many nodes, and its pods, instead; several sizes make several traces.",
)
@click.option(
    "--mix",
    default="default",
    show_default=True,
    help="Pods to make up: default, gpuspec33, multigpu20, gpushare100, or several of them.",
)
@click.option("--policies", default="bestfit,fgd,tonnage", show_default=True, help="Policies to compare.")
@click.option("--seeds", default="42-44", show_default=True, help="Orders of arrival, such as 42-51 or 1,5,9.")
@click.option("--rename-nodes", is_flag=True, help="Deal the nodes' names out at random: nothing should hang on them.")
@click.option(
    "--move-share",
    type=float,
    default=0.0,
    metavar="SHARE",
    help="Move at most this share of the pods to make room for others, such as 0.02. [default: 0]",
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
def placement(ctx: click.Context, /, jobs: int | None, ray: str, output: str, **asked: object) -> None:
    """Replay pods that arrive one by one, under several placement policies.

    Pods ask for up to 130 % of the fleet's GPUs; one that fits nowhere is dropped. The result says which share of the
    GPUs each policy put to work, how fragmented the rest is, and how long decisions took.

    \b
    tonnage simulate placement --generate 300 --report out/placement.html
    tonnage simulate placement --nodes nodes.csv --pods pods.csv --seeds 42-51 -o json
    tonnage simulate placement --generate 1000,5000 --seeds 1-50 --ray head:6379 --results out/runs
    """
    from cli.inputs.contest import ContestOptions, contest_from
    from cli.printing.placement_output import as_html, as_json, as_table
    from cli.verbs.simulate_placement import run_contest
    from simulator.reports.sweep_report import write_report

    wanted = ContestOptions(**asked)  # type: ignore[arg-type]  # click gives each option the type that is declared above
    check_sources(wanted)
    outcome = run_contest(contest_from(wanted), executor_of(ray, jobs), wanted.results)
    if outcome.swept.kept:
        click.echo(f"{outcome.swept.kept} replays were kept in {wanted.results} by an earlier sweep", err=True)
    if outcome.swept.done:
        click.echo(as_json(outcome) if output == "json" else as_table(outcome), nl=False)
        if wanted.report is not None:
            write_report(wanted.report, as_html(outcome, command=_command(), machine=machine_in_words()))
            click.echo(f"report: {wanted.report}", err=True)
    if outcome.swept.stopped:
        total = len(outcome.contest.runs)
        click.echo(f"stopped ({outcome.swept.stopped}): {len(outcome.swept.done)} of {total} replays done", err=True)
        click.echo(resume_hint(wanted.results), err=True)
        ctx.exit(INCOMPLETE)


def check_sources(asked: "ContestOptions") -> None:
    """A fleet is either read or made up."""
    if asked.generate and (asked.nodes or asked.pods):
        raise click.UsageError("--generate makes up a fleet: leave --nodes and --pods out, or leave --generate out")
    if not asked.generate and not (asked.nodes and asked.pods):
        raise click.UsageError("give a fleet: --nodes CSV and --pods CSV, or --generate NODES")


def _command() -> str:
    """The command line as one would type it again."""
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
    help="How long the day is, run_contest.",
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
    help="GPUs that jobs ask for at the peak, as a share of the fleet (of half of it beside services).",
)
@click.option("--job-hours", type=click.FloatRange(0.01, 1000), default=2.0, show_default=True, help="Median of a job.")
@click.option("--lose", default="", metavar="NODE", help="The node that is lost. [default: the busiest]")
@click.option(
    "--lose-hour",
    type=click.FloatRange(min=-1),
    default=13.0,
    show_default=True,
    metavar="HOUR",
    help="When it is lost, for three hours; -1: never.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of arrivals and durations.")
@click.option("--policy", default="tonnage", show_default=True, help="Placement policy.")
@click.option(
    "--polish",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Empty nodes between plans where that pays, moving at most this share of the pods at a time.",
)
@click.option(
    "--brain",
    type=click.Choice(["inline", "embedded"]),
    default="inline",
    show_default=True,
    help="Who plans: this process, or an own Ray on this machine.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=0.0,
    show_default=True,
    help="Let the day take at least so long on a terminal, to be watched.",
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
    report: Path | None,
    output: str,
    **wanted: object,
) -> None:
    """Live through a day with the controller's own loop: jobs come and go, demand has its tide, a node is lost.

    The fleet, its services and the kinds of jobs are those of the manifests. What waits on standard output at the end
    is the day in figures.

    \b
    tonnage simulate day -f examples/ --seconds 60 --report out/day.html
    """
    from cli.verbs.simulate_day import lived
    from simulator.day.simulation import DaySettings

    settings = DaySettings(lose_hour=None if lose_hour < 0 else lose_hour, **wanted)  # type: ignore[arg-type]
    lived(
        files,
        settings,
        policy=policy,
        polish=polish,
        brain=brain,
        seconds=seconds,
        report=report,
        output=output,
        command=_command(),
    )
