"""`tonnage bundle`: support bundle of the operator's last cycles, to explain or replay its decisions."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import Cluster, Impersonated, Target, access_options, on_cluster_in_turn, target_from

if TYPE_CHECKING:
    from controller.recording.bundle import Bundle


@click.command(epilog="tonnage bundle -o bundle.tar.gz && tonnage replay bundle.tar.gz")
@click.option(
    "-o", "--output", metavar="FILE", help="File to write; - is standard output. [default: tonnage-bundle-TIME.tar.gz]"
)
@click.option("--from", "origin", metavar="URL", help="URL of an operator's probe port, such as http://127.0.0.1:8081.")
@access_options
def bundle(
    output: str | None,
    origin: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Fetch the snapshots, plans and results of the operator's last cycles, with settings, versions and Events.

    The result is a tar.gz. All running replicas are read through the API server, which needs permission to get
    pods/proxy in their namespace. --from reads one address instead; Events are then included only if --context or
    --kubeconfig names the cluster.

    A bundle contains names of nodes, pods, gangs and services, and labels and taints of nodes. It contains no Secrets,
    no container environments, and no raw annotations. Read decisions.json and latest-snapshot.json in it before you
    send it.
    """
    from cli.printing.bundle_output import summary

    target = target_from(kubeconfig, context, user, timeout_s)
    named = any(value is not None for value in (context, kubeconfig, user))
    made, events, unread = _from_address(origin, target, named=named) if origin else _from_cluster(target)
    for words in unread:
        click.echo(f"note: left out: {words}", err=True)
    at_s = time.time()
    file = output or f"tonnage-bundle-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(at_s))}.tar.gz"
    _write(file, made, events, unread, at_s)
    click.echo(summary(made), err=True)
    if file != "-":
        click.echo(file)


def _from_cluster(target: Target) -> "tuple[Bundle, list[Any], list[str]]":
    from cli.inputs.bundles import bundles_on, events_on
    from cli.printing.event_rows import is_ours
    from controller.recording.bundle import merged

    async def work(cluster: Cluster) -> "tuple[Bundle, list[Any], list[str]]":
        found, unread = await bundles_on(cluster)
        events, no_events = await events_on(cluster, is_ours)
        return merged(found), events, [*unread, *no_events]

    return on_cluster_in_turn(target, work)


def _from_address(origin: str, target: Target, *, named: bool) -> "tuple[Bundle, list[Any], list[str]]":
    from cli.inputs.bundles import bundle_at, events_on
    from cli.printing.event_rows import is_ours

    made = bundle_at(origin, target.access.request_timeout_s)
    if not named:
        return made, [], ["Events: neither --context nor --kubeconfig names a cluster"]
    events, unread = on_cluster_in_turn(target, lambda cluster: events_on(cluster, is_ours))
    return made, events, unread


def _write(file: str, made: "Bundle", events: list[Any], unread: list[str], at_s: float) -> None:
    from cli.printing.bundle_output import EVENTS, as_json, fetched, readable_files
    from cluster.errors import ConfigError, Mistake
    from controller.recording.bundle import write_tar_gz

    files = (
        *made.files.items(),
        ("fetched.json", as_json(fetched(at_s, unread))),
        (EVENTS, as_json(events)),
        *readable_files(made),
    )
    if file == "-":
        write_tar_gz(sys.stdout.buffer, files, at_s)
        return
    try:
        with Path(file).open("wb") as to:
            write_tar_gz(to, files, at_s)
    except OSError as error:
        raise ConfigError(Mistake(file, f"cannot be written: {error.strerror}")) from error
