"""`tonnage plan`: plan for a fleet, from manifests or from a live cluster."""

import sys
from pathlib import Path

import click

from cli.inputs.cluster import Impersonated, access_options, target_from
from cli.inputs.planning import Planning, one_origin, planned, planned_on, planning_options, print_notes
from cli.printing.errors import FAILED


@click.command(epilog="kubectl get nodes,pods -A -o json | tonnage plan -f - -f gpu-types.yaml")
@planning_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml", "diff"]),
    help="diff: only the changes. [default: table for files, diff for a cluster]",
)
@click.option(
    "--move-share",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="SHARE",
    help="Largest fraction of running pods to move where that saves more than it costs, such as 0.02. [default: 0]",
)
@click.option("--timings", is_flag=True, help="Add the solver's time in seconds.")
@click.option("--fail-on-unplaced", is_flag=True, help="Exit with 1 if a workload could not be placed or served.")
@access_options
@click.pass_context
def plan(
    ctx: click.Context,
    files: tuple[str, ...],
    config: Path | None,
    deadline_s: float | None,
    policy: str | None,
    output: str | None,
    move_share: float,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
    *,
    timings: bool,
    fail_on_unplaced: bool,
) -> None:
    """Plan a fleet: GPU mix and routing of every service, a node for every pod, and the unplaced workloads.

    Reads GPUType, ModelProfile, ModelService and Gang of tonnage.dev/v1alpha1, and Node and Pod of v1, from files (-f)
    or from the cluster of the kubeconfig. For a cluster, the plan is what the operator would do next. Read-only.
    """
    from cli.printing import plan_output

    one_origin(files, context=context, kubeconfig=kubeconfig, **{"as": user})
    planning = Planning(config, policy, deadline_s, move_share)
    target = target_from(kubeconfig, context, user, timeout_s)
    made = planned(files, planning, sys.stdin) if files else planned_on(target, planning)
    print_notes(made.notes)
    print_notes(plan_output.cut_short_notes(made.plan, made.settings.plan_deadline_s))
    output = output or ("table" if files else "diff")
    if output == "diff":
        plan_output.show_diff(made)
    else:
        plan_output.show(made, output, timings=timings, with_changes=not files)
    if fail_on_unplaced and plan_output.left_over(made.plan):
        ctx.exit(FAILED)
