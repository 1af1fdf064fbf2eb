"""`tonnage top`: allocated, stranded and idle GPUs of a fleet, and their cost."""

import sys
import time
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import ClusterAccess, LiveCluster, access_options, on_cluster
from cli.inputs.options import files_option, output_choice, setting
from cli.inputs.planning import one_origin, print_notes

if TYPE_CHECKING:
    from cluster.snapshot import Snapshot
    from controller.placers import NodePool
    from controller.queries.usage import Usage
    from controller.snapshot.from_manifests import Observed

Document = dict[str, Any]

WHAT = ("nodes", "gpus", "pools")
ORDERS = ("name", "used", "idle")


@click.command(epilog="tonnage top gpus")
@click.argument("what", type=click.Choice(WHAT))
@files_option("Manifest file or folder instead of a cluster; may be repeated.")
@setting("--sort-by", "name", "used: most allocated first; idle: highest idle cost first.", click.Choice(ORDERS))
@output_choice("table", "wide", "json", "yaml", words="wide: all columns, also where the terminal is narrower.")
@access_options
def top(what: str, files: tuple[str, ...], sort_by: str, output: str, access: ClusterAccess) -> None:
    """Show allocation and cost by node, GPU type, or node pool.

    USED is the number of devices allocated to pods, by their requests. STRANDED devices are free, but typical pods of
    this cluster cannot use them for lack of CPU, memory or GPU on the same node. CLOSED devices are free on
    unschedulable nodes. Costs use the on-demand prices of the GPUTypes; IDLE $/H is the cost of unallocated devices.
    """
    one_origin(files, access)
    if files:
        from controller.objects.manifests import read_manifests
        from controller.placers import DEFAULT_POOLS
        from controller.snapshot.from_manifests import snapshot_from

        observed = snapshot_from(read_manifests(files, sys.stdin))
        pools: tuple[NodePool, ...] = DEFAULT_POOLS
    else:
        observed, pools = on_cluster(access, _seen)
    print_notes(observed.notes)
    data = document(observed.snapshot, what, pools, sort_by)
    if output in ("table", "wide"):
        room = get_terminal_size().columns if output == "table" and sys.stdout.isatty() else None
        click.echo(text(data, what, room), nl=False)
        return
    from cli.printing.plan_figures import written

    click.echo(written(data, output), nl=False)


async def _seen(cluster: LiveCluster) -> "tuple[Observed, tuple[NodePool, ...]]":
    from controller.queries.installation import find_installation
    from controller.queries.list_once import list_cluster

    seen = await list_cluster(cluster.connection, time.time)
    return seen.seen(), (await find_installation(cluster.connection)).pools


def document(snapshot: "Snapshot", what: str, pools: "Sequence[NodePool]", sort_by: str = "name") -> Document:
    """Rows and their total as plain data."""
    from controller.queries import usage

    if what == "pools":
        rows = usage.of_pools(snapshot, pools)
    else:
        rows = usage.of_nodes(snapshot) if what == "nodes" else usage.of_types(snapshot)
    total, ordered = usage.total(rows), list(rows)
    if sort_by != "name":
        ordered.sort(key=lambda each: -each.used_share if sort_by == "used" else -each.idle_cost_per_hour)
    return {what: list(map(_usage, ordered)), "total": _usage(total)}


def _usage(usage: "Usage") -> Document:
    from cli.printing.plan_figures import figure

    plain = ("name", "gpu_type", "schedulable", "nodes", "pods", "gpus")
    of_gpus = ("used", "free", "stranded", "unwanted", "closed", "used_share")
    rounded = ("cpu_share", "memory_share", "cost_per_hour", "idle_cost_per_hour")
    return {
        **{name: getattr(usage, name) for name in plain},
        **{f"gpus_{name}": figure(getattr(usage, name)) for name in of_gpus},
        **{name: figure(getattr(usage, name)) for name in rounded},
    }


LEAST = ("MEM%", "UNWANTED", "CPU%", "PODS", "CLOSED", "NODES", "USED%", "$/H", "STRANDED")
"""Columns that narrow terminals do without, the first one first."""


def text(data: Document, what: str, room: int | None = None) -> str:
    """Rows in columns, with the total below. room: width of the terminal; None: no limit."""
    from cli.printing.columns import columns

    of_node = what == "nodes"
    named = {"nodes": "NODE", "gpus": "GPU TYPE", "pools": "POOL"}[what]
    second = "GPU TYPE" if of_node else "NODES"
    headers = (named, second, "PODS", "GPUS", "USED", "USED%", "FREE", "STRANDED", "UNWANTED", "CLOSED", "CPU%",
               "MEM%", "$/H", "IDLE $/H")  # fmt: skip
    cells = [dict(zip(headers, _row(each, of_node=of_node), strict=True)) for each in (*data[what], data["total"])]
    kept, without = list(headers), list(LEAST)
    while True:
        made = columns(kept, [[row[name] for name in kept] for row in cells])
        if room is None or not without or max(map(len, made.splitlines())) <= room:
            return made
        if (name := without.pop(0)) in kept:
            kept.remove(name)


def _row(usage: Document, *, of_node: bool) -> Sequence[str]:
    from cli.printing.plan_figures import money

    closed = " (closed)" if of_node and not usage["schedulable"] else ""
    devices = (usage[f"gpus_{state}"] for state in ("free", "stranded", "unwanted", "closed"))
    return (
        usage["name"] + closed,
        usage["gpu_type"] if of_node else str(usage["nodes"]),
        str(usage["pods"]),
        str(usage["gpus"]),
        f"{usage['gpus_used']:.4g}",
        f"{100 * usage['gpus_used_share']:.0f}%",
        *(f"{count:.4g}" if count > 0.0005 else "0" for count in devices),
        f"{100 * usage['cpu_share']:.0f}%",
        f"{100 * usage['memory_share']:.0f}%",
        money(usage["cost_per_hour"]),
        money(usage["idle_cost_per_hour"]),
    )
