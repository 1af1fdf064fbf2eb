"""`tonnage drain`: empties a node, after showing where its pods would go."""

import asyncio
import time
from typing import TYPE_CHECKING, Literal

import click

from cli.inputs import cluster as inputs_cluster
from cli.inputs.planning import complete_policies
from cli.printing.terminal import FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.queries.drain import Consent, NextPlace, NodePod

DryRun = Literal["none", "client", "server"]


@click.command(epilog="tonnage drain gpu-7 --ignore-daemonsets --dry-run=client")
@click.argument("node", shell_complete=inputs_cluster.complete_nodes)
@click.option("--ignore-daemonsets", is_flag=True, help="Leave pods of DaemonSets on the node.")
@click.option("--delete-emptydir-data", is_flag=True, help="Evict pods with data in an emptyDir, which is lost.")
@click.option("--force", is_flag=True, help="Evict pods that no controller recreates.")
@click.option("--grace-period", "grace_s", type=click.IntRange(min=0), metavar="SECONDS",
              help="Seconds that pods get to terminate.")  # fmt: skip
@click.option("--timeout", "within_s", type=inputs_cluster.duration, default=0.0, metavar="DURATION",
              help="Stop after this time; evicted pods stay evicted. [default: no limit]")  # fmt: skip
@click.option("--policy", default="tonnage", show_default=True, shell_complete=complete_policies,
              help="Placement policy of the preview.")  # fmt: skip
@inputs_cluster.dry_run_option
@inputs_cluster.access_options
@click.pass_context
def drain(
    ctx: click.Context,
    /,
    node: str,
    grace_s: int | None,
    within_s: float,
    policy: str,
    dry_run: DryRun,
    access: inputs_cluster.ClusterAccess,
    **consented: bool,
) -> None:
    """Cordon a node and evict its pods, respecting PodDisruptionBudgets; return when they are gone.

    First shows where Tonnage's packer would restart each pod, and the effect on gangs and services. (kube-scheduler
    decides for its own pods.) --dry-run=client stops there; --dry-run=server also asks the server whether it would
    evict each pod. `kubectl uncordon NODE` makes the node schedulable again.
    """
    from controller.queries.drain import Consent

    async def work(cluster: inputs_cluster.LiveCluster) -> bool:
        return await drain_node(cluster, node, Consent(**consented), policy, dry_run, grace_s, within_s)

    if not inputs_cluster.on_cluster(access, work):
        ctx.exit(FAILED)


async def drain_node(
    cluster: inputs_cluster.LiveCluster,
    node: str,
    consent: "Consent",
    policy: str,
    dry_run: DryRun,
    grace_s: int | None,
    within_s: float,
) -> bool:
    """Show what a drain does, then cordon and empty the node; False where it is not empty, which was reported."""
    from cli.inputs.planning import packer_of
    from controller.kube import crud
    from controller.queries.drain import NodePod, cordon, drain_preview, evict_all, pods_of_node
    from controller.queries.list_once import list_cluster
    from controller.settings import settings_from

    await crud.read(cluster.connection, f"/api/v1/nodes/{node}")  # NotFound is reported before anything else
    on_node = {"fieldSelector": f"spec.nodeName={node}"}
    found = pods_of_node(await crud.list_all(cluster.connection, "/api/v1/pods", on_node), consent)
    leaving = [guest for guest in found if guest.fate == "leaves"]
    seen = (await list_cluster(cluster.connection, time.time)).seen()
    _print_preview(found, *drain_preview(seen.snapshot, node, leaving, packer_of(settings_from({"policy": policy}))))
    if blocking := [guest for guest in found if guest.fate == "blocks"]:
        click.echo(f"error: node/{node} is not drained, nothing was done: {len(blocking)} pods block it", err=True)
        return False
    tail = inputs_cluster.DRY_RUN_TAIL[dry_run]
    if dry_run == "client":
        click.echo(f"node/{node} would be drained{tail}")
        return True
    closed = await cordon(cluster.connection, node, dry_run=dry_run == "server")
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
        words = f"error: node/{node} is cordoned but not empty after {within_s:g} s; repeat, or kubectl uncordon {node}"
        click.echo(words, err=True)
        return False
    click.echo(f"node/{node} {'drained' if is_empty else 'is cordoned but not empty'}{tail}")
    return is_empty


def _print_preview(found: "Sequence[NodePod]", would: "Sequence[NextPlace]", concerned: "Sequence[str]") -> None:
    from cli.printing.columns import columns

    seats = {seat.pod: seat for seat in would}
    rows = []
    for guest in found:
        seat = seats.get(guest.full_name)
        node, devices, why = "-", "-", guest.why
        if guest.fate == "leaves" and seat and seat.node:
            node, devices = seat.node, ",".join(map(str, seat.devices)) or "-"
        elif guest.fate == "leaves":
            why = why or (seat.why if seat else "it has terminated")
        rows.append((guest.full_name, guest.fate, node, devices, why))
    click.echo(columns(("POD", "FATE", "STARTS ON", "DEVICES", "WHY"), rows), nl=False)
    for words in concerned:
        click.echo(words)
