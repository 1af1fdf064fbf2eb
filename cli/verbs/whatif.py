"""`tonnage whatif`: plans for many variations of a fleet at once."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import ClusterAccess, access_options
from cli.inputs.options import files_option, output_choice, report_option, setting
from cli.inputs.planning import DEFAULT_DEADLINE_S, complete_policies, deadline, dump_of, one_origin, print_notes, read
from cli.inputs.runs import executor_of, save_report, sweep_options
from cli.printing.terminal import tell_end

if TYPE_CHECKING:  # numpy and its users are imported only after the options were checked
    from cli.inputs.sweeps import WhatIfOptions, WhatIfResult
    from cluster.snapshot import Snapshot
    from simulator.scenarios import Scenario, ScenarioAnswer
    from simulator.sweep.runner import Executor, ResultCache, SweepProgress


@click.command(epilog="tonnage whatif -f examples/ --demand 0.5,1,2,4 --price a100=2.5,3.67 --report out/whatif.html")
@files_option("Manifest file or folder; may be repeated. - reads standard input. [default: the cluster]")
@setting("--demand", "1", "Multiples of today's request rate.", metavar="FACTOR,...")
@setting("--slo", "1", "Multiples of the SLO's time per token.", metavar="FACTOR,...")
@click.option("--price", multiple=True, metavar="TYPE=$,...",
              help="Dollars per GPU and hour, both spot and on demand; may be repeated.")  # fmt: skip
@click.option("--nodes", multiple=True, metavar="TYPE=+N,-N,...",
              help="Nodes to add or remove, by GPU type; may be repeated.")  # fmt: skip
@click.option("--lose", multiple=True, metavar="LABEL",
              help="Node label, such as topology.kubernetes.io/rack: one scenario without the nodes of each of its "
              "values; may be repeated.")  # fmt: skip
@click.option("--policies", default="tonnage", show_default=True, shell_complete=complete_policies,
              help="Placement policies.")  # fmt: skip
@setting("--seeds", "0", "Seeds of the planner, such as 0-4.")
@setting(
    "--deadline deadline_s",
    DEFAULT_DEADLINE_S,
    "Work budget of each scenario, as the longest time it takes on a slow core.",
    deadline,
    "DURATION",
)
@report_option()
@sweep_options
@output_choice("table", "json")
@access_options
@click.pass_context
def whatif(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    output: str,
    jobs: int | None,
    ray: str,
    access: ClusterAccess,
    **given: Any,
) -> None:
    """Compare cost and capacity of a fleet under other demand, prices, SLOs, nodes or policies.

    Plans every combination of the given values once; the first line is the fleet unchanged. Read-only.
    """
    from cli.inputs.sweeps import WhatIfOptions, scenarios_from
    from cli.printing.scenario_output import as_html, as_json, as_table
    from simulator.scenarios import losses

    options = WhatIfOptions(**given)
    scenarios = scenarios_from(options)
    one_origin(files, access)
    observed = read(files, sys.stdin) if files else read(("-",), dump_of(access))
    print_notes(observed.notes)
    lost = [each for label in options.lose for each in losses(observed.snapshot, label)]
    scenarios += tuple(replace(each, lost=one) for one in lost for each in scenarios)
    result = run_scenarios(scenarios, options, observed.snapshot, executor_of(ray, jobs))
    if result.swept.done:
        click.echo(as_json(result) if output == "json" else as_table(result), nl=False)
        if options.report is not None:
            save_report(options.report, as_html(result))
    tell_end(ctx, result.swept, options.results, "scenarios")


def run_scenarios(
    scenarios: "Sequence[Scenario]", options: "WhatIfOptions", snapshot: "Snapshot", way: "Executor"
) -> "WhatIfResult":
    """Plan every scenario, with progress on standard error. Raises ConfigError before planning starts."""
    import time
    from datetime import UTC, datetime
    from functools import partial

    from cli.inputs.sweeps import WhatIfResult, scenario_label
    from cli.printing.progress import progress_on
    from cluster.errors import ConfigError, Mistake
    from simulator.scenarios import answered, changed
    from simulator.sweep.runner import sweep

    mistakes: list[Mistake] = []
    for scenario in scenarios:
        try:
            changed(snapshot, scenario)
        except ConfigError as error:
            mistakes += [mistake for mistake in error.mistakes if mistake not in mistakes]
    if mistakes:
        raise ConfigError(tuple(mistakes))

    def in_words(progress: "SweepProgress[Scenario, ScenarioAnswer]") -> str:
        return f"{scenario_label(progress.run)}: ${progress.result.services_per_hour:,.2f}/h for services"

    started_at, began_s = datetime.now(UTC), time.perf_counter()
    play = partial(answered, snapshot=snapshot, within_s=options.deadline_s)
    with progress_on(sys.stderr, len(scenarios), in_words) as on_done:
        swept = sweep(scenarios, play, way=way, cache=_cache_of(options, snapshot), on_done=on_done)
    return WhatIfResult(tuple(scenarios), swept, started_at, time.perf_counter() - began_s)


def _cache_of(options: "WhatIfOptions", snapshot: "Snapshot") -> "ResultCache[Scenario, ScenarioAnswer] | None":
    """Cache of the answers, keyed by all that determines them."""
    import pickle

    from simulator.scenarios import ScenarioAnswer
    from simulator.sweep.runner import ResultCache, code_digest, digest_of

    if options.results is None:
        return None
    # The same manifests read by the same code give the same bytes.
    same = digest_of(pickle.dumps(snapshot), code_digest(), repr(options.deadline_s))
    return ResultCache(options.results, ScenarioAnswer, lambda run: f"whatif-{digest_of(repr(run), same)}.frame")
