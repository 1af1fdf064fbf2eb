"""`tonnage simulate`: simulations of a fleet: placement of arriving pods, a day, power."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.options import files_option, output_choice, report_option, setting
from cli.inputs.planning import complete_policies
from cli.inputs.runs import executor_of, save_report, sweep_options
from cli.printing.terminal import VerbGroup, tell_end
from cli.verbs.power import simulate_power

if TYPE_CHECKING:  # numpy and its users are imported only after the options were checked
    from cli.inputs.sweeps import Contest, ContestOptions, ContestResult
    from simulator.packing.replay import Replay
    from simulator.sweep.runner import Executor, PolicyRun, ResultCache

CSV = click.Path(path_type=Path)
GENERATE = "Generate a fleet with this number of nodes, and its pods; several sizes give several traces."
BASELINE = "Simulate the same day with one GPU type for each service that follows its demand, and pods by best fit."


@click.group(cls=VerbGroup)
def simulate() -> None:
    """Simulate a datacenter: placement of arriving pods, a day, power."""


simulate.add_command(simulate_power)


@simulate.command()
@click.option("--nodes", type=CSV, metavar="CSV", help="Node list of a fleet.")
@click.option("--pods", type=CSV, multiple=True, metavar="CSV", help="Pod list; may be repeated.")
@click.option("--generate", default="", metavar="NODES,...", help=GENERATE)
@setting("--mix", "default", "Generated pods: default, gpuspec33, multigpu20, gpushare100, or several of them.")
@click.option("--policies", default="bestfit,fgd,tonnage", show_default=True, shell_complete=complete_policies,
              help="Policies to compare.")  # fmt: skip
@setting("--seeds", "42-44", "Orders of arrival, such as 42-51 or 1,5,9.")
@click.option("--prices", default="", metavar="TYPE=$,...",
              help="Dollars per GPU and hour. [default: illustrative prices of the openb types]")  # fmt: skip
@report_option()
@sweep_options
@output_choice("table", "json")
@click.pass_context
def placement(ctx: click.Context, /, jobs: int | None, ray: str, output: str, **given: Any) -> None:
    """Replay pods that arrive one by one, under several placement policies.

    Pods request up to 130 % of the fleet's GPUs; a pod that fits nowhere is dropped. Reports the fraction of GPUs that
    each policy allocated, the fragmentation of the rest, and the time per decision.

    \b
    tonnage simulate placement --generate 300 --report out/placement.html
    tonnage simulate placement --nodes nodes.csv --pods pods.csv --seeds 42-51 -o json
    tonnage simulate placement --generate 1000,5000 --seeds 1-50 --ray head:6379 --results out/runs
    """
    from cli.inputs.sweeps import ContestOptions, contest_from
    from cli.printing.placement_output import as_html, as_json, as_table

    options = ContestOptions(**given)
    check_sources(options)
    result = run_contest(contest_from(options), executor_of(ray, jobs), options.results)
    if result.swept.done:
        click.echo(as_json(result) if output == "json" else as_table(result), nl=False)
        if options.report is not None:
            save_report(options.report, as_html(result))
    tell_end(ctx, result.swept, options.results, "replays")


def check_sources(options: "ContestOptions") -> None:
    """Raises click.UsageError unless the fleet is either read or generated."""
    if options.generate and (options.nodes or options.pods):
        raise click.UsageError("give either --generate, or --nodes and --pods")
    if not options.generate and not (options.nodes and options.pods):
        raise click.UsageError("give a fleet: --nodes CSV and --pods CSV, or --generate NODES")


def run_contest(contest: "Contest", way: "Executor", results: Path | None = None) -> "ContestResult":
    """Run the contest, with progress on standard error. results: folder for finished replays."""
    import time
    from datetime import UTC, datetime
    from functools import partial

    from cli.inputs.sweeps import ContestResult
    from cli.printing.progress import progress_on, replay_in_words
    from simulator.packing.policy_comparison import bounds_of, play
    from simulator.sweep.runner import sweep

    started_at, began_s = datetime.now(UTC), time.perf_counter()
    with progress_on(sys.stderr, len(contest.runs), replay_in_words) as on_done:
        replay = partial(play, traces=contest.traces)
        swept = sweep(contest.runs, replay, way=way, cache=_cache_of(contest, results), on_done=on_done)
    bounds = bounds_of([run for run, _ in swept.done], contest.traces)
    return ContestResult(contest, swept, bounds, started_at, time.perf_counter() - began_s)


def _cache_of(contest: "Contest", folder: Path | None) -> "ResultCache[PolicyRun, Replay] | None":
    """Cache of the contest's replays, keyed by all that determines them: trace content and code."""
    from simulator.packing.replay import Replay
    from simulator.sweep.runner import ResultCache, code_digest, digest_of

    if folder is None:
        return None
    code = code_digest()

    def name_of(run: "PolicyRun") -> str:
        return f"{run.trace}-{run.policy}-{run.seed}-{digest_of(contest.digests[run.trace], code)}.frame"

    return ResultCache(folder, Replay, name_of)


@simulate.command()
@files_option("Manifest file, or folder of them; may be repeated. - reads standard input.", required=True)
@setting("--hours", 24.0, "Simulated hours.", click.FloatRange(0, 24 * 7, min_open=True))
@setting("--step step_s", 600.0, "Simulated time from one cycle to the next.", click.FloatRange(1, 3600), "SECONDS")
@setting(
    "--load",
    0.8,
    "GPUs that jobs request at the peak, as a fraction of the fleet (of half of it if there are services).",
    click.FloatRange(0, 10, min_open=True),
)
@setting("--job-hours", 2.0, "Median duration of a job.", click.FloatRange(0.01, 1000))
@click.option("--lose", default="", metavar="NODE", help="Node that is lost. [default: the busiest]")
@setting("--lose-hour", 13.0, "Hour at which the node is lost, for three hours; -1: never.", click.FloatRange(min=-1),
         "HOUR")  # fmt: skip
@setting("--seed", 0, "Seed of arrivals and durations.", click.IntRange(0))
@click.option("--policy", default="tonnage", show_default=True, shell_complete=complete_policies,
              help="Placement policy.")  # fmt: skip
@click.option("--baseline/--no-baseline", default=True, show_default=True, help=BASELINE)
@report_option("Write a report with charts; to FILE.svg the picture of the services' cost alone.")
@output_choice("table", "json")
def day(files: tuple[str, ...], **given: Any) -> None:
    """Simulate a day with the controller's own loop: jobs come and go, demand varies, a node is lost.

    The fleet, its services and the kinds of jobs come from the manifests. Standard output has the day's figures at the
    end.

    \b
    tonnage simulate day -f examples/ --report out/day.html
    """
    from cli.verbs.simulate_day import simulate_day
    from simulator.day.simulation import DaySettings

    lose_hour = given.pop("lose_hour")
    shown = {name: given.pop(name) for name in ("policy", "baseline", "report", "output")}
    simulate_day(files, DaySettings(lose_hour=None if lose_hour < 0 else lose_hour, **given), **shown)
