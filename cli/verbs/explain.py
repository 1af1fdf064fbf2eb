"""`tonnage explain`: reasons behind one object's plan, or the documentation of a kind or field."""

import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from cli.inputs.cluster import Impersonated, cluster_options, target_from
from cli.inputs.planning import Planning, one_origin, packer_of, planned, planned_on, planning_options, print_notes
from cli.printing.errors import FAILED, print_error
from cluster.errors import TonnageError

FORBIDDEN = 403


def _targets(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completions of KIND/NAME: objects of the files given with -f so far, otherwise kinds only."""
    from cluster.errors import ConfigError
    from controller.objects.manifests import read_manifests

    if "/" not in incomplete and "." in incomplete and not ctx.params.get("files"):
        from cli.printing.field_documentation import field_names

        return [CompletionItem(name) for name in field_names(incomplete) if name.startswith(incomplete)]
    try:
        read = read_manifests(ctx.params.get("files") or ())
        names = [each.subject for kind in (read.services, read.gangs, read.pods, read.nodes) for each in kind]
    except ConfigError:
        from controller.queries.explain import EXPLAINED

        names = [f"{kind}/" for kind in EXPLAINED]
    return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


@click.command(epilog="tonnage explain modelservice.spec.slo")
@click.argument("target", metavar="KIND/NAME | KIND[.FIELD...]", shell_complete=_targets)
@planning_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option("--recursive", is_flag=True, help="For a field: include all nested fields.")
@cluster_options
def explain(
    target: str,
    files: tuple[str, ...],
    config: Path | None,
    deadline_s: float | None,
    policy: str | None,
    output: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
    *,
    recursive: bool,
) -> None:
    """Explain the plan for one object, or the meaning of a field.

    \b
    ModelService/NAME  why this mix, its binding constraints, and which GPU type serves each request length
    Pod/NAME           cost terms of the chosen node and the runners-up, or which resource was short on how many nodes
    Gang/NAME          nodes of its members, or why it was held back
    Node/NAME          pods that run there, start there or leave, and what stays free
    KIND.FIELD         documentation of a field of Tonnage's kinds, as kubectl explain prints it

    Objects come from files (-f), otherwise from the cluster of the kubeconfig. NAME may be NAMESPACE/NAME; the default
    namespace is that of -n, or `default`. A pod's candidates are scored with the rest of the plan in place.
    """
    if "/" not in target and not files:
        from cli.printing.field_documentation import field_text

        click.echo(field_text(target, recursive=recursive), nl=False)
        return
    from cli.printing import explanation_output
    from controller.queries.explain import explain as why
    from controller.queries.explain import kind_and_name

    kind, name = kind_and_name(target)  # errors in the argument are reported before planning
    one_origin(files, context=context, kubeconfig=kubeconfig, **{"as": user})
    if namespace and "/" not in name and kind != "Node":
        target = f"{kind}/{namespace}/{name}"
    planning = Planning(config, policy, deadline_s)
    access = target_from(kubeconfig, context, user, timeout_s)
    try:
        made = planned(files, planning, sys.stdin) if files else planned_on(access, planning)
    except TonnageError as error:
        if getattr(getattr(error, "refusal", None), "status", 0) != FORBIDDEN:
            raise
        print_error(error)
        within, _, alone = name.rpartition("/")
        described = f"tonnage describe {kind.lower()} {alone} -n {within or namespace or 'default'}"
        click.echo(f"explain plans the whole cluster; within your rights, {described} has the last decision", err=True)
        click.get_current_context().exit(FAILED)
    answer = why(made.snapshot, made.plan, target, packer_of(made.settings))
    print_notes(made.notes)
    explanation_output.show(answer, output)
