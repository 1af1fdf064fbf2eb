"""`tonnage controlplane`: real Kubernetes control plane on this machine, to try Tonnage without a cluster."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.inputs.options import output_choice
from cli.printing.terminal import FAILED, VerbGroup, drawable

if TYPE_CHECKING:  # imported only after the options were checked
    from simulator.controlplane.commands import ControlPlaneSettings, Folder

folder_option = click.option(
    "--dir",
    "path",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the control plane; each folder is a separate one. [default: ~/.local/state/tonnage/controlplane]",
)


@click.group(cls=VerbGroup)
def controlplane() -> None:
    """Run a real Kubernetes control plane on this machine, with simulated GPU nodes.

    Upstream's etcd, API server, scheduler and controller manager on loopback, with RBAC. The first start builds them,
    which takes several minutes. See docs/controlplane.md.
    """


@controlplane.command(epilog='eval "$(tonnage controlplane up --nodes 50)" && kubectl get nodes')
@folder_option
@click.option("--nodes", type=click.IntRange(min=0), help="Simulate this number of nodes of a generated fleet.")
@click.option(
    "--nodes-from",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Simulate the nodes of these manifests, such as examples/nodes.yaml.",
)
@click.option("--seed", type=int, help="Seed of the generated fleet.")
@click.option(
    "--dra-driver",
    metavar="DRIVER",
    help="Publish the generated GPUs in ResourceSlices of this DRA driver, such as gpu.nvidia.com.",
)
@click.option("--node-lifecycle/--no-node-lifecycle", default=None, help="Evict pods from nodes that stop reporting.")
@click.option("--dry-run", is_flag=True, help="Print the command lines without running them.")
def up(path: Path | None, nodes: int | None, nodes_from: Path | None, *, dry_run: bool, **given: object) -> None:
    """Start the control plane, or its missing processes; return when it serves.

    Omitted options keep their values of the last start. Prints the line that points kubectl at it.
    """
    from simulator.controlplane.binaries import control_plane_programs, progress_on
    from simulator.controlplane.nodes.node_objects import nodes_in
    from simulator.controlplane.server import planned, up as start

    if nodes is not None and nodes_from is not None:
        raise click.UsageError("give either --nodes (a generated fleet) or --nodes-from (a file)")
    folder = folder_at(path)
    settings = settings_from(folder, nodes=nodes, nodes_from=nodes_from, **given)
    if settings.manifests:  # a wrong file is told now, not after minutes of building
        nodes_in(Path(settings.manifests))
    programs = control_plane_programs(progress_on(drawable(sys.stderr)))
    if dry_run:
        for line in planned(folder, settings, programs).values():
            click.echo(shlex.join(map(str, line)))
        return
    made = start(folder, settings, programs, on_step=_print_message)
    for reason in made.missing.values():
        _print_message(f"not started: {reason}")
    began = f"ready in {made.ready_in_s:.1f} s" if made.started else "was already running"
    _print_message(f"{made.url} {began}; logs in {made.folder.log_of('kube-apiserver').parent}")
    if kubectl := programs.path.get("kubectl"):
        _print_message(f"kubectl of the same release: {kubectl}")
    click.echo(f"export KUBECONFIG={shlex.quote(str(made.kubeconfig))}")


@controlplane.command()
@folder_option
@click.option("--delete", is_flag=True, help="Also delete the folder: all objects of the cluster, and the logs.")
@click.option("--dry-run", is_flag=True, help="Print what would be stopped.")
def down(path: Path | None, *, delete: bool, dry_run: bool) -> None:
    """Stop the control plane. Its objects are kept for the next start, unless --delete is given."""
    from simulator.controlplane.server import down as stop, status as status_of

    folder = folder_at(path)
    if dry_run:
        for process in status_of(folder):
            _print_message(f"would stop {process.name} (pid {process.pid})")
        _print_message(f"would delete {folder.path}" if delete else f"would keep {folder.path}")
        return
    stopped = stop(folder, delete=delete, on_step=_print_message)
    _print_message(f"stopped {len(stopped)} processes" if stopped else "nothing was running")


@controlplane.command()
@folder_option
@output_choice("table", "json")
@click.pass_context
def status(ctx: click.Context, path: Path | None, output: str) -> None:
    """Show the running processes. Exits with 1 if none runs or one does not serve."""
    from simulator.controlplane.server import status as status_of

    folder = folder_at(path)
    found = status_of(folder)
    if output == "json":
        processes = [
            {"name": p.name, "ready": p.ready, "pid": p.pid, "memoryBytes": p.memory_bytes, "log": str(p.log)}
            for p in found
        ]
        click.echo(json.dumps({"kubeconfig": str(folder.kubeconfig), "processes": processes}, indent=2))
    elif found:
        from cli.printing.tables import table

        rows = (
            (p.name, "yes" if p.ready else "no", str(p.pid), f"{p.memory_bytes / 1e6:.0f} MB", str(p.log))
            for p in found
        )
        click.echo(table(("process", "serves", "pid", "memory", "log"), rows), nl=False)
    if not found:
        _print_message(f"nothing runs in {folder.path}; start it with: tonnage controlplane up")
    if not found or not all(process.ready for process in found):
        ctx.exit(FAILED)


def folder_at(path: Path | None) -> "Folder":
    from simulator.controlplane.commands import Folder, default_folder

    return Folder((path or default_folder()).absolute())


def settings_from(
    folder: "Folder", *, nodes: int | None = None, nodes_from: Path | None = None, **given: object
) -> "ControlPlaneSettings":
    """Settings of the last start, changed by the options given now."""
    from simulator.controlplane.commands import ControlPlaneSettings
    from simulator.controlplane.server import state_of

    before = state_of(folder)
    settings = before.settings if before is not None else ControlPlaneSettings()
    if nodes is not None:
        settings = replace(settings, nodes=nodes, manifests="")
    if nodes_from is not None:
        settings = replace(settings, nodes=0, manifests=str(nodes_from.absolute()))
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(settings, **changes)  # type: ignore[arg-type]  # click gives each option its declared type


def _print_message(words: str) -> None:
    click.echo(words, err=True)
