"""`tonnage health`: incidents of a cluster explained, release of a node, and analysis of recorded records."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cli.inputs import cluster as inputs_cluster
from cli.inputs.options import output_choice, setting
from cli.printing.columns import human_duration
from cli.printing.object_output import show_rows
from cli.printing.terminal import FAILED, VerbGroup

Object = dict[str, Any]
NONE = "-"
FOLDER = click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
OUT = click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="PNG, SVG or HTML file."
)


@click.group(cls=VerbGroup)
def health() -> None:
    """Explain suspected faults and what is done about them, release a node, and analyse recorded jobs."""


@health.command(epilog="tonnage health advise")
@output_choice("table", "json")
@inputs_cluster.access_options
def advise(output: str, access: inputs_cluster.ClusterAccess) -> None:
    """Advise how often each job should save, by what its saves were seen to take and how often it stops.

    LOST is the part of its time that goes into checkpoints and into work done again. SPARES are the free nodes with
    which it has as many as it needs 99 % of the time; a job that can go on with fewer nodes needs fewer.
    """
    from cli.printing.reported import reported
    from controller.api.health_policy import HealthPolicyStatus

    policies = inputs_cluster.listed(access, "healthpolicies", all_namespaces=True)
    found = [each for policy in reported(policies, HealthPolicyStatus) for each in policy.status.checkpoints]
    rows = (
        (
            each.job,
            *map(human_duration, (each.save, each.interval, each.advised)),
            f"{each.lost_share:.1%}",
            f"{each.advised_lost_share:.1%}",
            str(each.spares),
        )
        for each in found
    )
    data = [each.model_dump(mode="json", by_alias=True) for each in found]
    nothing = "No checkpoint was seen: jobs mark theirs with recorder.phase(Phase.CHECKPOINT)."
    show_rows(output, data, ("JOB", "SAVE", "EVERY", "ADVISED", "LOST", "LOST AS ADVISED", "SPARES"), rows, nothing)


@health.command(epilog="tonnage health explain node-gpu-7-1f2e3d4c5b")
@click.argument("incident")
@inputs_cluster.access_options
@click.pass_context
def explain(ctx: click.Context, incident: str, access: inputs_cluster.ClusterAccess) -> None:
    """Explain an incident: its evidence, what was decided, and what each alternative would cost in GPU-hours."""
    found = inputs_cluster.listed(access, "faultincidents", all_namespaces=True)
    wanted = next((each for each in found if each["metadata"]["name"] == incident), None)
    if wanted is None:
        click.echo(f"there is no FaultIncident {incident}; tonnage get faultincidents lists them", err=True)
        ctx.exit(FAILED)
    click.echo("\n".join(explanation(wanted, time.time())))


@health.command(epilog="tonnage health release gpu-7")
@click.argument("node", shell_complete=inputs_cluster.complete_nodes)
@inputs_cluster.dry_run_option
@inputs_cluster.access_options
def release(node: str, dry_run: str, access: inputs_cluster.ClusterAccess) -> None:
    """Release a node from quarantine or probation: its incident is closed, and Tonnage removes its taint.

    It states on the node that a person has released it. New evidence opens another incident.
    """

    async def work(cluster: inputs_cluster.LiveCluster) -> bool:
        return await release_node(cluster, node, dry_run)

    is_out = inputs_cluster.on_cluster(access, work)
    click.echo(f"node/{node} released{inputs_cluster.DRY_RUN_TAIL[dry_run]}")
    if not is_out:
        words = "has no taint of health; an incident about it, if one is open, is closed"
        click.echo(f"note: node/{node} {words}", err=True)


async def release_node(cluster: inputs_cluster.LiveCluster, node: str, dry_run: str) -> bool:
    """State on a node that a person has released it; returns whether health kept it out. Raises KubeReadError."""
    from cluster.changes import OUR_TAINTS
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
@FOLDER
@output_choice("table", "json")
@click.pass_context
def replay(ctx: click.Context, folder: Path, output: str) -> None:
    """Analyse a recorded job: frames of the recorder, or dumps of PyTorch's flight recorder (docs/health.md, Replay).

    Exits with 1 if something is blamed.
    """
    from cli.inputs.recorded_job import VERDICT_HEADERS, verdicts_in

    found = verdicts_in(folder)
    data, rows = [each.as_data() for each in found], (each.cells for each in found)
    show_rows(output, data, VERDICT_HEADERS, rows, "Nothing stands out.")
    if any(each.verdict.blames for each in found):
        ctx.exit(FAILED)


@health.command(epilog="tonnage health heatmap recordings/slow-nic --out slow.png")
@FOLDER
@OUT
def heatmap(folder: Path, out: Path) -> None:
    """Draw how long each rank of a recorded job computed in each step; stragglers are bright."""
    from cli.inputs.recorded_job import compute_times
    from cli.printing.job_pictures import draw_stragglers

    draw_stragglers(compute_times(folder), out)
    click.echo(f"{out}")


@health.command(epilog="tonnage health timeline recordings/hang-of-last-week --out hang.html")
@FOLDER
@OUT
@setting("--last last_s", 10.0, "Seconds to draw.", click.FloatRange(0.1))
def timeline(folder: Path, out: Path, last_s: float) -> None:
    """Draw the operations of each rank over time, and when something was found."""
    from cli.inputs.recorded_job import operations_of, verdicts_in
    from cli.printing.job_pictures import draw_timeline

    draw_timeline(operations_of(folder), verdicts_in(folder), last_s, out)
    click.echo(f"{out}")


def explanation(incident: Object, now_s: float) -> Iterator[str]:
    """What is suspected and why, what was decided, what it waits for, and what else could be done at which price."""
    from controller.api.fault_incident import FaultIncidentStatus

    status, spec = FaultIncidentStatus.read(incident.get("status") or {}), incident.get("spec") or {}
    suspect = spec.get("domain") or ", ".join(spec.get("nodes", [])) or NONE
    since = f", since {human_duration(now_s - status.since)}" if status.since else ""
    yield f"{incident['metadata']['name']}: {status.phase or 'not reported yet'}{since}"
    yield f"suspect: {suspect} ({status.part or 'unknown'}), confidence {status.confidence:.2f}"
    yield f"disturbance: {status.syndrome}; jobs: {', '.join(status.jobs) or 'none'}"
    yield f"sources: {', '.join(status.sources) or 'none'}"
    for line in status.evidence:
        yield f"  {line}"
    if status.remedy:
        yield f"decided: {status.remedy}"
    if status.waits_for:
        yield f"waits for: {status.waits_for}"
    if status.probe:
        yield f"a probe would decide: {status.probe}"
    if status.alternatives:
        yield "alternatives, in expected GPU-hours:"
    for each in status.alternatives:
        price = "cannot be done" if each.gpu_hours is None else f"{each.gpu_hours:g}"
        yield f"  {each.do}: {price}{f' ({each.note})' if each.note else ''}"
