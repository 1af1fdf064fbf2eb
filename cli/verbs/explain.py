"""`tonnage explain`: why the plan treats one object as it does; or what a kind or a field of Tonnage's means."""

import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from cli.inputs.cluster import Impersonated, cluster_options, target_from
from cli.inputs.planning import Planning, one_origin, packer_of, planned, planned_on, planning_options, say


def _targets(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes KIND/NAME with the objects in the files that -f already names, or with the kinds alone."""
    from cluster.errors import ConfigError
    from controller.objects.manifests import read_manifests

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
@click.option("--recursive", is_flag=True, help="Of a field: all fields below it, too.")
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
    """Say why the plan treats one object as it does, or what a field means.

    \b
    ModelService/NAME  why this mix, what binds it, and where each length of request goes
    Pod/NAME           the parts of the chosen node's score and of the runners-up, or what was short where
    Gang/NAME          where its members are, or why it was held back
    Node/NAME          what runs there, starts there, leaves it, and what stays free
    KIND.FIELD         what a field of a kind of Tonnage's means, as kubectl explain does

    Objects are those of files (-f), else of the cluster of the kubeconfig. NAME may be NAMESPACE/NAME; else the
    namespace is that of -n, or `default`. A pod is looked at with all else as planned.
    """
    from cli.printing import explanation_output
    from controller.queries.explain import explain as why
    from controller.queries.explain import kind_and_name

    if "/" not in target and not files:
        from cli.printing.field_documentation import field_text

        click.echo(field_text(target, recursive=recursive), nl=False)
        return
    kind, name = kind_and_name(target)  # a slip of the pen is told before anything is planned
    one_origin(files, context=context, kubeconfig=kubeconfig, **{"as": user})
    if namespace and "/" not in name and kind != "Node":
        target = f"{kind}/{namespace}/{name}"
    planning = Planning(config, policy, deadline_s)
    access = target_from(kubeconfig, context, user, timeout_s)
    made = planned(files, planning, sys.stdin) if files else planned_on(access, planning)
    answer = why(made.snapshot, made.plan, target, packer_of(made.settings))
    say(made.notes)
    explanation_output.show(answer, output)
