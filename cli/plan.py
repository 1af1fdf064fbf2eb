"""`tonnage plan`: what would be done about a fleet, from its manifests."""

import sys

import click

from cli.main import FAILED
from cli.planning import decider, planned, planning_options, say


@click.command(epilog="kubectl get nodes,pods -A -o json | tonnage plan -f - -f gpu-types.yaml")
@planning_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option(
    "--move-share",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="SHARE",
    help="Move at most this share of the running pods, such as 0.02, where that saves more than it costs. [default: 0]",
)
@click.option("--timings", is_flag=True, help="Add the seconds that solving took, which differ from run to run.")
@click.option("--fail-on-unplaced", is_flag=True, help="Exit with 1 when anything could not be placed or served.")
@click.pass_context
def plan(
    ctx: click.Context,
    files: tuple[str, ...],
    deadline_s: float,
    policy: str,
    output: str,
    move_share: float,
    *,
    timings: bool,
    fail_on_unplaced: bool,
) -> None:
    """Plan a fleet: GPU mix and routing of every service, a place for every pod, and what is left over.

    Reads GPUType, ModelProfile, ModelService and Gang of tonnage.dev/v1alpha1, and Node and Pod of v1. Nothing is
    changed anywhere.
    """
    from cli import show_plan

    made = planned(files, decider(policy, deadline_s, move_share), sys.stdin)
    say(made.notes)
    show_plan.show(made, output, timings=timings)
    if fail_on_unplaced and show_plan.left_over(made.plan):
        ctx.exit(FAILED)
