"""`tonnage simulate`: replay what arrives at a pretend fleet."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.machine import machine_in_words
from cli.simulate_power import power
from cli.sweeping import hint, sweep_options, way_of

if TYPE_CHECKING:  # numpy and what stands on it are imported once the options are known to be right
    from cli.contest import Asked

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
    from cli.contest import Asked, contest_from
    from cli.show_simulation import as_html, as_json, as_table
    from cli.simulation import simulated
    from simulator.report import write_report

    wanted = Asked(**asked)  # type: ignore[arg-type]  # click gives each option the type that is declared above
    check_sources(wanted)
    outcome = simulated(contest_from(wanted), way_of(ray, jobs), wanted.results)
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
        click.echo(hint(wanted.results), err=True)
        ctx.exit(INCOMPLETE)


def check_sources(asked: "Asked") -> None:
    """A fleet is either read or made up."""
    if asked.generate and (asked.nodes or asked.pods):
        raise click.UsageError("--generate makes up a fleet: leave --nodes and --pods out, or leave --generate out")
    if not asked.generate and not (asked.nodes and asked.pods):
        raise click.UsageError("give a fleet: --nodes CSV and --pods CSV, or --generate NODES")


def _command() -> str:
    """The command line as one would type it again."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
