"""`tonnage cordon` and `tonnage uncordon`: close a node to new pods, and open it again."""

from typing import Literal, cast

import click

from cli.inputs.cluster import (
    Cluster,
    Impersonated,
    Target,
    access_options,
    complete_nodes,
    dry_run_option,
    on_cluster_in_turn,
    target_from,
)
from cli.printing.errors import FAILED, print_error

DryRun = Literal["none", "client", "server"]


@click.command(epilog="tonnage cordon gpu-7 gpu-8")
@click.argument("nodes", nargs=-1, required=True, shell_complete=complete_nodes)
@dry_run_option
@access_options
@click.pass_context
def cordon(
    ctx: click.Context,
    nodes: tuple[str, ...],
    dry_run: str,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Mark nodes as unschedulable: no scheduler starts pods there. Running pods stay (see drain)."""
    if not set_all(nodes, target_from(kubeconfig, context, user, timeout_s), dry_run, closed=True):
        ctx.exit(FAILED)


@click.command(epilog="tonnage uncordon gpu-7 gpu-8")
@click.argument("nodes", nargs=-1, required=True, shell_complete=complete_nodes)
@dry_run_option
@access_options
@click.pass_context
def uncordon(
    ctx: click.Context,
    nodes: tuple[str, ...],
    dry_run: str,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Mark nodes as schedulable again, after cordon or drain.

    A node that health keeps out is closed again; `tonnage health release` opens it.
    """
    if not set_all(nodes, target_from(kubeconfig, context, user, timeout_s), dry_run, closed=False):
        ctx.exit(FAILED)


def set_all(nodes: tuple[str, ...], target: Target, dry_run: str, *, closed: bool) -> bool:
    """Close or open nodes, with a line for each; False when one failed, which was reported."""

    async def work(cluster: Cluster) -> bool:
        return all([await _set(cluster, node, dry_run, closed=closed) for node in dict.fromkeys(nodes)])

    return on_cluster_in_turn(target, work)


async def _set(cluster: Cluster, node: str, dry_run: str, *, closed: bool) -> bool:
    from controller.kube.request import KubeReadError, KubeWriteError
    from controller.queries.evict_node import set_unschedulable

    try:
        changed = await set_unschedulable(cluster.connection, node, closed=closed, dry_run=cast(DryRun, dry_run))
    except (KubeReadError, KubeWriteError) as error:
        print_error(error)
        return False
    tail = {"none": "", "client": " (dry run)", "server": " (server dry run)"}[dry_run]
    word = "cordoned" if closed else "uncordoned"
    click.echo(f"node/{node} {'' if changed else 'already '}{word}{tail}")
    return True
