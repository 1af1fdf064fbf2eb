"""`tonnage plan` and `tonnage explain`: plan for a fleet, from manifests or a live cluster, and the reasons in it."""

import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from cli.inputs.cluster import ClusterAccess, access_options, cluster_options
from cli.inputs.options import output_choice
from cli.inputs.planning import Planning, one_origin, packer_of, planned, planned_on, planning_options, print_notes
from cli.printing.terminal import FAILED, print_error
from cluster.errors import TonnageError


@click.command(epilog="kubectl get nodes,pods -A -o json | tonnage plan -f - -f gpu-types.yaml")
@planning_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "diff"]),
              help="diff: only the changes. [default: table for files, diff for a cluster]")  # fmt: skip
@click.option("--timings", is_flag=True, help="Add the solver's time in seconds.")
@click.option("--fail-on-unplaced", is_flag=True, help="Exit with 1 if a workload could not be placed or served.")
@access_options
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    output: str | None,
    access: ClusterAccess,
    *,
    timings: bool,
    fail_on_unplaced: bool,
    **given: Any,
) -> None:
    """Plan a fleet: GPU mix and routing of every service, a node for every pod, and the unplaced workloads.

    Reads GPUType, ModelProfile, ModelService and Gang of tonnage.dev/v1alpha1, and Node and Pod of v1, from files (-f)
    or from the cluster of the kubeconfig. For a cluster, the plan is what the operator would do next. Read-only.
    In files, workloads of other kinds that ask for accelerators count as unplaced where no pods are made of them.
    """
    from cli.printing import plan_output

    one_origin(files, access)
    planning = Planning(**given)
    made = planned(files, planning, sys.stdin) if files else planned_on(access, planning)
    print_notes(made.notes)
    print_notes(plan_output.cut_short_notes(made.plan, made.settings.plan_deadline_s))
    output = output or ("table" if files else "diff")
    if output == "diff":
        plan_output.show_diff(made)
    else:
        plan_output.show(made, output, timings=timings, with_changes=not files)
    if fail_on_unplaced and plan_output.left_over(made.plan):
        ctx.exit(FAILED)


FORBIDDEN = 403


def _targets(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completions of KIND/NAME: objects of the files given with -f so far, otherwise kinds only."""
    from cluster.errors import ConfigError
    from controller.objects.manifests import read_manifests
    from controller.queries.explain import EXPLAINED

    if "/" not in incomplete and "." in incomplete and not ctx.params.get("files"):
        from cli.printing.field_documentation import field_names

        return [CompletionItem(name) for name in field_names(incomplete) if name.startswith(incomplete)]
    try:
        read = read_manifests(ctx.params.get("files") or ())
        names = [each.subject for each in read.all if each.kind.name in EXPLAINED]
    except ConfigError:
        names = [f"{kind}/" for kind in EXPLAINED]
    return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


@click.command(epilog="tonnage explain modelservice.spec.slo")
@click.argument("target", metavar="KIND/NAME | KIND[.FIELD...]", shell_complete=_targets)
@planning_options
@output_choice("table", "json", "yaml")
@cluster_options
def explain(target: str, files: tuple[str, ...], output: str, access: ClusterAccess, **given: Any) -> None:
    """Explain the plan for one object, or the meaning of a field.

    \b
    ModelService/NAME  why this mix, its binding constraints, and which GPU type serves each request length
    Pod/NAME           cost terms of the chosen node and the runners-up, or which resource was short on how many nodes
    Gang/NAME          nodes of its members, or why it was held back
    Node/NAME          pods that run there, start there or leave, and what stays free
    KIND.FIELD         what a field of Tonnage's kinds means

    Objects come from files (-f), otherwise from the cluster of the kubeconfig. NAME may be NAMESPACE/NAME; the default
    namespace is that of -n, or `default`. A pod's candidates are scored with the rest of the plan in place.
    """
    if "/" not in target and not files:
        from cli.printing.field_documentation import field_text

        click.echo(field_text(target), nl=False)
        return
    from cli.printing import explanation_output
    from controller.queries.explain import explain as why, kind_and_name

    kind, name = kind_and_name(target)  # errors in the argument are reported before planning
    one_origin(files, access)
    if access.namespace and "/" not in name and kind != "Node":
        target = f"{kind}/{access.namespace}/{name}"
    planning = Planning(**given)
    try:
        made = planned(files, planning, sys.stdin) if files else planned_on(access, planning)
    except TonnageError as error:
        if getattr(getattr(error, "refusal", None), "status", 0) != FORBIDDEN:
            raise
        print_error(error)
        within, _, alone = name.rpartition("/")
        described = f"tonnage describe {kind.lower()} {alone} -n {within or access.namespace or 'default'}"
        click.echo(f"explain plans the whole cluster; within your rights, {described} has the last decision", err=True)
        click.get_current_context().exit(FAILED)
    answer = why(made.snapshot, made.plan, target, packer_of(made.settings))
    print_notes(made.notes)
    explanation_output.show(answer, output)
