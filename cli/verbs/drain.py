"""`tonnage drain`: empties a node, after showing where its pods would go."""

import asyncio
import time
from typing import Any

import click

from cli.inputs.cluster import (
    Cluster,
    Impersonated,
    access_options,
    complete_nodes,
    dry_run_option,
    duration,
    on_cluster,
    target_from,
)
from cli.inputs.planning import complete_policies
from cli.printing.errors import FAILED

Object = dict[str, Any]


@click.command(epilog="tonnage drain gpu-7 --ignore-daemonsets --dry-run=client")
@click.argument("node", shell_complete=complete_nodes)
@click.option("--ignore-daemonsets", is_flag=True, help="Leave pods of DaemonSets on the node.")
@click.option("--delete-emptydir-data", is_flag=True, help="Evict pods with data in an emptyDir, which is lost.")
@click.option("--force", is_flag=True, help="Evict pods that no controller recreates.")
@click.option(
    "--grace-period",
    "grace_s",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Seconds that pods get to terminate.",
)
@click.option(
    "--timeout",
    "within_s",
    type=duration,
    default=0.0,
    metavar="DURATION",
    help="Stop after this time; evicted pods stay evicted. [default: no limit]",
)
@click.option(
    "--policy",
    default="tonnage",
    show_default=True,
    shell_complete=complete_policies,
    help="Placement policy of the preview.",
)
@dry_run_option
@access_options
@click.pass_context
def drain(
    ctx: click.Context,
    node: str,
    grace_s: int | None,
    within_s: float,
    policy: str,
    dry_run: str,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
    *,
    ignore_daemonsets: bool,
    delete_emptydir_data: bool,
    force: bool,
) -> None:
    """Cordon a node and evict its pods, respecting PodDisruptionBudgets; return when they are gone.

    First shows where Tonnage's packer would restart each pod, and the effect on gangs and services. (kube-scheduler
    decides for its own pods.) --dry-run=client stops there; --dry-run=server also asks the server whether it would
    evict each pod. `tonnage uncordon NODE` makes the node schedulable again.
    """
    from controller.queries.drain import Consent

    consent = Consent(ignore_daemonsets, force, delete_emptydir_data)

    async def work(cluster: Cluster) -> bool:
        return await _drain(cluster, node, consent, policy, dry_run, grace_s, within_s)

    if not on_cluster(target_from(kubeconfig, context, user, timeout_s), work):
        ctx.exit(FAILED)


async def _drain(
    cluster: Cluster, node: str, consent: Any, policy: str, dry_run: str, grace_s: int | None, within_s: float
) -> bool:
    from cli.inputs.planning import packer_of
    from controller.kube import crud
    from controller.queries.drain import NodePod, drain_preview, pods_of_node
    from controller.queries.evict_node import evict_all, set_unschedulable
    from controller.queries.list_once import list_cluster
    from controller.settings import settings_from

    await crud.read(cluster.connection, f"/api/v1/nodes/{node}")  # NotFound is reported before anything else
    on_node = {"fieldSelector": f"spec.nodeName={node}"}
    found = pods_of_node(await crud.list_all(cluster.connection, "/api/v1/pods", on_node), consent)
    leaving = [guest for guest in found if guest.fate == "leaves"]
    seen = (await list_cluster(cluster.connection, time.time)).seen()
    _print(found, drain_preview(seen.snapshot, node, leaving, packer_of(settings_from({"policy": policy}))))
    if blocking := [guest for guest in found if guest.fate == "blocks"]:
        click.echo(f"error: node/{node} is not drained, nothing was done: {len(blocking)} pods block it", err=True)
        return False
    if dry_run == "client":
        click.echo(f"node/{node} would be drained (dry run)")
        return True
    tail = " (server dry run)" if dry_run == "server" else ""
    closed = await set_unschedulable(
        cluster.connection, node, closed=True, dry_run="server" if dry_run == "server" else "none"
    )
    click.echo(f"node/{node} {'cordoned' if closed else 'already cordoned'}{tail}")
    start_s = time.monotonic()

    def print_outcome(guest: NodePod, words: str) -> None:
        click.echo(f"{time.monotonic() - start_s:6.1f} s  pod/{guest.full_name} {words}{tail}", err=words != "evicted")

    try:
        async with asyncio.timeout(within_s or None):
            is_empty = await evict_all(
                cluster.connection, leaving, print_outcome, grace_s=grace_s, dry_run=dry_run == "server"
            )
    except TimeoutError:
        words = f"error: node/{node} is cordoned but not empty after {within_s:g} s; repeat, or tonnage uncordon {node}"
        click.echo(words, err=True)
        return False
    click.echo(f"node/{node} {'drained' if is_empty else 'is cordoned but not empty'}{tail}")
    return is_empty


def _print(found: Any, would: Any) -> None:
    from cli.printing.columns import columns

    seats = {seat.pod: seat for seat in would.seats}
    rows = []
    for guest in found:
        seat = seats.get(guest.full_name)
        match guest.fate:
            case "leaves" if seat and seat.node:
                rows.append((guest.full_name, "leaves", seat.node, ",".join(map(str, seat.devices)) or "-", guest.why))
            case "leaves":
                why = guest.why or (seat.why if seat else "it has terminated")
                rows.append((guest.full_name, "leaves", "-", "-", why))
            case fate:
                rows.append((guest.full_name, fate, "-", "-", guest.why))
    click.echo(columns(("POD", "FATE", "STARTS ON", "DEVICES", "WHY"), rows), nl=False)
    for words in would.concerned:
        click.echo(words)
