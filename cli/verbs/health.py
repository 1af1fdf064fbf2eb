"""`tonnage health`: incidents and policies of a cluster, release of a node, and analysis of recorded records."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from cli.printing.columns import columns
from cli.printing.errors import FAILED
from cli.printing.whole_help import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

Object = dict[str, Any]
OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.group(cls=Group)
def health() -> None:
    """Show suspected faults and what is done about them, release a node, and analyse recorded jobs."""


@health.command(epilog="tonnage health status")
@OUTPUT
@access_options
@click.pass_context
def status(
    ctx: click.Context,
    output: str,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Show each HealthPolicy: nodes, nodes that are out, open incidents. Exits with 1 if an incident is open."""
    from cli.printing.health_output import POLICY_HEADERS, is_open, policy_rows

    target = target_from(kubeconfig, context, user, timeout_s)
    policies, incidents = _listed(target, "healthpolicies"), _listed(target, "faultincidents")
    if output == "json":
        click.echo(json.dumps({"policies": policies, "incidents": incidents}, indent=2))
    elif policies:
        click.echo(columns(POLICY_HEADERS, policy_rows(policies)), nl=False)
    else:
        click.echo("No health policies found: nothing is watched over.", err=True)
    if any(map(is_open, incidents)):
        ctx.exit(FAILED)


@health.command(epilog="tonnage health incidents")
@click.option("--all", "every", is_flag=True, help="Closed incidents as well.")
@OUTPUT
@access_options
def incidents(
    every: bool,
    output: str,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """List FaultIncidents: what is suspected, which jobs it disturbs, and what it waits for."""
    from cli.printing.health_output import INCIDENT_HEADERS, incident_rows, is_open

    found = _listed(target_from(kubeconfig, context, user, timeout_s), "faultincidents")
    shown = [each for each in found if every or is_open(each)]
    if output == "json":
        click.echo(json.dumps(shown, indent=2))
    elif shown:
        click.echo(columns(INCIDENT_HEADERS, incident_rows(shown, time.time())), nl=False)
    else:
        click.echo("No incidents found.", err=True)


@health.command(epilog="tonnage health explain node-gpu-7-1f2e3d4c5b")
@click.argument("incident")
@access_options
@click.pass_context
def explain(
    ctx: click.Context,
    incident: str,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Explain an incident: its evidence, what was decided, and what each alternative would cost in GPU-hours."""
    from cli.printing.health_output import explanation

    found = _listed(target_from(kubeconfig, context, user, timeout_s), "faultincidents")
    wanted = next((each for each in found if each["metadata"]["name"] == incident), None)
    if wanted is None:
        click.echo(f"there is no FaultIncident {incident}; tonnage health incidents --all lists them", err=True)
        ctx.exit(FAILED)
    click.echo("\n".join(explanation(wanted, time.time())))


@health.command(epilog="tonnage health release gpu-7")
@click.argument("node", shell_complete=complete_nodes)
@dry_run_option
@access_options
def release(
    node: str,
    dry_run: str,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Release a node from quarantine or probation: its incident is closed, and Tonnage removes its taint.

    It states on the node that a person has released it. New evidence opens another incident.
    """

    async def work(cluster: Cluster) -> bool:
        return await _release(cluster, node, dry_run)

    is_out = on_cluster_in_turn(target_from(kubeconfig, context, user, timeout_s), work)
    tail = {"none": "", "client": " (dry run)", "server": " (server dry run)"}[dry_run]
    click.echo(f"node/{node} released{tail}")
    if not is_out:
        words = "has no taint of health; an incident about it, if one is open, is closed"
        click.echo(f"note: node/{node} {words}", err=True)


async def _release(cluster: Cluster, node: str, dry_run: str) -> bool:
    """State on a node that a person has released it; returns whether health kept it out. Raises KubeReadError."""
    from cluster.quarantine import OUR_TAINTS
    from controller.api.labels import RELEASED_ANNOTATION
    from controller.api.notation import rfc3339
    from controller.kube.request import MERGE_PATCH

    path = f"/api/v1/nodes/{node}"
    seen = json.loads(await cluster.connection.read(path))
    if dry_run != "client":
        body = {"metadata": {"annotations": {RELEASED_ANNOTATION: rfc3339(time.time() + 1)}}}
        query = {"dryRun": "All"} if dry_run == "server" else {}
        await cluster.connection.write("PATCH", path, body, query, MERGE_PATCH)
    return any(taint["key"] in OUR_TAINTS for taint in seen["spec"].get("taints") or ())


@health.command(epilog="tonnage health replay recordings/hang-of-last-week")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@OUTPUT
@click.pass_context
def replay(ctx: click.Context, folder: Path, output: str) -> None:
    """Analyse a recorded job: frames of the recorder, or dumps of PyTorch's flight recorder (docs/health.md, Replay).

    Exits with 1 if something is blamed.
    """
    from cli.inputs.recorded_job import verdicts_in

    found = verdicts_in(folder)
    if output == "json":
        click.echo(json.dumps([each.as_data() for each in found], indent=2))
    elif found:
        header = ("AT", "SYNDROME", "PART", "RANKS", "CONF", "CAUSE OR PROBE", "EVIDENCE")
        click.echo(columns(header, [each.cells for each in found]), nl=False)
    else:
        click.echo("Nothing stands out.", err=True)
    if any(each.verdict.blames for each in found):
        ctx.exit(FAILED)


@health.command(epilog="tonnage health heatmap recordings/slow-nic --out slow.png")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="PNG, SVG or HTML file.")
def heatmap(folder: Path, out: Path) -> None:
    """Draw how long each rank of a recorded job computed in each step; stragglers are bright."""
    from cli.inputs.recorded_job import compute_times
    from cli.printing.straggler_map import draw

    draw(compute_times(folder), out)
    click.echo(f"{out}")


@health.command(epilog="tonnage health timeline recordings/hang-of-last-week --out hang.html")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="PNG, SVG or HTML file.")
@click.option("--last", "last_s", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds to draw.")
def timeline(folder: Path, out: Path, last_s: float) -> None:
    """Draw the operations of each rank over time, and when something was found."""
    from cli.inputs.recorded_job import operations_of, verdicts_in
    from cli.printing.job_timeline import draw

    draw(operations_of(folder), verdicts_in(folder), last_s, out)
    click.echo(f"{out}")


def _listed(target: Target, plural: str) -> "Sequence[Object]":
    from controller.kube import crud

    found: list[Object] = []

    async def work(cluster: Cluster) -> bool:
        path = cluster.discovered.named(plural).collection("")
        found.extend(await crud.list_all(cluster.connection, path))
        return True

    on_cluster_in_turn(target, work)
    return found
