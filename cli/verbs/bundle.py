"""`tonnage bundle` and `tonnage replay`: support bundle of the operator's last cycles, and its decisions made anew."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import ClusterAccess, LiveCluster, access_options, on_cluster
from cli.inputs.options import output_choice, setting
from cli.inputs.planning import MOST_DEADLINE_S
from cli.printing.terminal import FAILED
from cluster.errors import ConfigError, Mistake, ObservationError

if TYPE_CHECKING:
    from cluster.clock import Clock
    from controller.ports import Brain
    from controller.recording.bundle import Bundle
    from controller.settings import OperatorSettings

Object = dict[str, Any]

PATH, PROBE_PORT = "/debug/bundle", 8081
EVENTS = "/apis/events.k8s.io/v1/events"
TARGET = "File to write; - is standard output. [default: tonnage-bundle-TIME.tar.gz]"


@click.command(epilog="tonnage bundle -o bundle.tar.gz && tonnage replay bundle.tar.gz")
@click.option("-o", "--output", metavar="FILE", help=TARGET)
@click.option("--from", "origin", metavar="URL", help="URL of an operator's probe port, such as http://127.0.0.1:8081.")
@access_options
def bundle(output: str | None, origin: str | None, access: ClusterAccess) -> None:
    """Fetch the snapshots, plans and results of the operator's last cycles, with settings, versions and Events.

    The result is a tar.gz. All running replicas are read through the API server, which needs permission to get
    pods/proxy in their namespace. --from reads one address instead; Events are then included only if --context or
    --kubeconfig names the cluster.

    A bundle contains names of nodes, pods, gangs and services, and labels and taints of nodes. It contains no Secrets,
    no container environments, and no raw annotations. Read decisions.json and latest-snapshot.json in it before you
    send it.
    """
    from cli.printing import bundle_output
    from controller.recording.bundle import merged, write_tar_gz

    if not origin:
        found, events, unread = on_cluster(access, _bundles_and_events)
        made = merged(found)
    else:
        made = bundle_at(origin, access.timeout_s)
        events, unread = [], ["Events: neither --context nor --kubeconfig names a cluster"]
        if access.named_by:
            events, unread = on_cluster(access, _events_on)
    for words in unread:
        click.echo(f"note: left out: {words}", err=True)
    at_s = time.time()
    files = (
        *made.files.items(),
        ("fetched.json", bundle_output.as_json(bundle_output.fetched(at_s, unread))),
        (bundle_output.EVENTS, bundle_output.as_json(events)),
        *bundle_output.readable_files(made),
    )
    file = output or f"tonnage-bundle-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(at_s))}.tar.gz"
    if file == "-":
        write_tar_gz(sys.stdout.buffer, files, at_s)
    else:
        try:
            with Path(file).open("wb") as to:
                write_tar_gz(to, files, at_s)
        except OSError as error:
            raise ConfigError(Mistake(file, f"cannot be written: {error.strerror}")) from error
    click.echo(bundle_output.summary(made), err=True)
    if file != "-":
        click.echo(file)


def bundle_in(file: str) -> "Bundle":
    """Bundle in a file. Raises ConfigError when the file is missing or cannot be read."""
    from controller.recording.bundle import read_bundle

    try:
        return read_bundle(Path(file).read_bytes(), file)
    except OSError as error:
        raise ConfigError(Mistake(file, f"cannot be read: {error.strerror}")) from error


def bundle_at(url: str, timeout_s: float) -> "Bundle":
    """Bundle that an operator serves at `http://host:port`. Raises ConfigError, ObservationError."""
    from urllib.error import URLError
    from urllib.parse import urlsplit
    from urllib.request import urlopen

    from controller.recording.bundle import read_bundle

    if urlsplit(url).scheme not in ("http", "https"):
        remedy = "kubectl port-forward provides such an address for a pod's probe port"
        raise ConfigError(Mistake(f"--from {url}", "should be an operator's http://HOST:PORT", remedy))
    whole = url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else PATH)
    try:
        with urlopen(whole, timeout=timeout_s or None) as answer:  # noqa: S310 - the scheme was checked above
            return read_bundle(answer.read(), whole)
    except (URLError, OSError) as error:
        raise ObservationError(f"reading {whole}: {getattr(error, 'reason', None) or error}") from error


async def _bundles_and_events(cluster: LiveCluster) -> "tuple[list[Bundle], list[Object], list[str]]":
    """Bundle of each running replica, Events, and messages about what could not be read.

    Raises ConfigError when no operator runs, KubeReadError when none of its pods could be read.
    """
    from controller.kube.request import KubeReadError
    from controller.queries.installation import find_installation
    from controller.recording.bundle import read_bundle

    installation = await find_installation(cluster.connection)
    port = (installation.settings or {}).get("probe_port") or PROBE_PORT
    pods = [pod["metadata"] for pod in installation.pods if (pod.get("status") or {}).get("phase") == "Running"]
    if not pods:
        why = installation.unread or "no running pod has the labels of the chart's operator"
        raise ConfigError(Mistake("the cluster's operator", why, "give its address with --from http://HOST:PORT"))
    found, unread = [], []
    for pod in pods:
        path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}:{port}/proxy{PATH}"
        try:
            content = await cluster.connection.read(path, {"pod": pod["uid"]})
            found.append(read_bundle(content, f"pod {pod['namespace']}/{pod['name']}"))
        except KubeReadError as error:
            unread.append(f"pod {pod['namespace']}/{pod['name']}: {error.refusal.words}")
            if len(unread) == len(pods):
                raise
    events, no_events = await _events_on(cluster)
    return found, events, [*unread, *no_events]


async def _events_on(cluster: LiveCluster) -> tuple[list[Object], list[str]]:
    """Events from Tonnage or about its objects; and a message when the Events may not be read."""
    from cli.printing.object_pages import is_ours
    from controller.kube import crud
    from controller.kube.request import KubeReadError

    try:
        found = await crud.list_all(cluster.connection, EVENTS)
    except KubeReadError as error:
        return [], [f"Events: {error.refusal.words}"]
    return [event for event in found if is_ours(event)], []


@click.command(epilog="tonnage replay bundle.tar.gz -o json")
@click.argument("file", metavar="BUNDLE", type=click.Path())
@output_choice("table", "json")
@click.option("--cycle", "numbers", type=int, multiple=True, help="Only the cycle with this number; may be repeated.")
@setting(
    "--deadline deadline_s",
    60.0,
    "Time for each plan. Long, so that a slower machine than the operator's decides the same.",
    click.FloatRange(min=0, min_open=True, max=MOST_DEADLINE_S),
    "SECONDS",
)
@click.pass_context
def replay(ctx: click.Context, file: str, output: str, numbers: tuple[int, ...], deadline_s: float) -> None:
    """Replay each recorded snapshot with this version's deciders and the bundle's settings, and compare the plans.

    Exits with 0 if every cycle has the same actions at the same cost, with 1 if one differs, with 2 if the bundle is
    unreadable.
    """
    from cli.printing import bundle_output
    from cli.printing.plan_figures import written
    from controller.brain.inline import limits_from
    from controller.recording.bundle import replayed, settings_from

    recorded = bundle_in(file)
    click.echo(bundle_output.summary(recorded), err=True)
    settings, unknown = settings_from(recorded.about.settings)
    for name in unknown:
        click.echo(f"note: this version has no setting {name}; it is ignored", err=True)
    known = {entry.number for entry in recorded.entries}
    if missing := sorted(set(numbers) - known):
        raise ConfigError(
            Mistake(f"--cycle {missing[0]}", "is not in the bundle", f"the bundle has {len(known)} cycles")
        )
    chosen = (cycle for cycle in recorded.cycles() if not numbers or cycle.entry.number in numbers)
    cycles = tuple(replayed(chosen, brain_with(settings, time.monotonic), limits_from(settings), deadline_s))
    if output == "json":
        click.echo(written(bundle_output.replay_document(recorded, cycles), output), nl=False)
    else:
        for part in bundle_output.replay_tables(cycles):
            click.echo(part)
    if not all(each.is_same for each in cycles):
        ctx.exit(FAILED)


def brain_with(settings: "OperatorSettings", clock: "Clock") -> "Brain":
    """Planner that decides in this process as an operator with these settings would, from the snapshot alone."""
    from controller.brain.inline import InlineBrain, decisions_from

    return InlineBrain(decisions_from(settings), clock)
