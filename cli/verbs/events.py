"""`tonnage events`: what was decided about objects of the cluster, the oldest first."""

import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import click

from cli.inputs.cluster import INTERRUPTED, Cluster, Impersonated, cluster_options, on_cluster, target_from
from cli.inputs.resource_arguments import name_of
from cli.printing.columns import as_table, sheet
from cli.printing.object_output import Output, as_list, output_option, text_of, without_managed_fields
from cluster.errors import ConfigError, Mistake

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class How:
    about: tuple[str, str] | None
    """(kind, name) of the object that is asked about."""
    all_namespaces: bool
    everybody: bool
    warnings: bool
    watch: bool
    output: Output
    headers: bool


@click.command(epilog="tonnage events --for modelservice/chat -w")
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@click.option("--for", "target", metavar="KIND/NAME", help="Only about this object, whoever says it.")
@click.option("--all-sources", is_flag=True, help="Also what others than Tonnage say about other objects.")
@click.option("--warnings", is_flag=True, help="Only what went wrong.")
@click.option("-w", "--watch", is_flag=True, help="Go on showing every event until Ctrl-C.")
@click.option("--no-headers", is_flag=True, help="Leave the line of headers out.")
@output_option
@cluster_options
@click.pass_context
def events(
    ctx: click.Context,
    target: str | None,
    output: Output,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
    *,
    all_namespaces: bool,
    all_sources: bool,
    warnings: bool,
    watch: bool,
    no_headers: bool,
) -> None:
    """Show what Tonnage decided and why: binds, evictions, scalings, and what has no place.

    An API server keeps events for an hour, unless it was told otherwise.
    """
    kind, _, name = (target or "").partition("/")
    if target and not (kind and name):
        raise ConfigError(Mistake(f"--for {target}", "should be KIND/NAME"))
    about = (kind, name) if target else None
    how = How(about, all_namespaces, all_sources, warnings, watch, output, not no_headers)

    async def work(cluster: Cluster) -> None:
        await _show(cluster, how)

    try:
        on_cluster(target_from(kubeconfig, context, user, timeout_s, namespace), work)
    except KeyboardInterrupt:
        ctx.exit(INTERRUPTED)


async def _show(cluster: Cluster, how: How) -> None:
    from cli.printing.event_rows import HEADERS, in_order, is_ours, row
    from controller.kube import crud
    from controller.kube.errors import KubeReadError

    kind = cluster.discovered.named(how.about[0]).kind if how.about else ""
    namespace = "" if how.all_namespaces else cluster.namespace
    # Events about objects without a namespace are kept in `default`.
    if how.about and not cluster.discovered.named(how.about[0]).is_namespaced:
        namespace = "default"
    path = f"/apis/events.k8s.io/v1{f'/namespaces/{namespace}' if namespace else ''}/events"
    query = {"fieldSelector": f"regarding.kind={kind},regarding.name={how.about[1]}"} if how.about else {}
    headers = ("NAMESPACE", *HEADERS) if how.all_namespaces else HEADERS
    printed = sheet(headers=how.headers)

    def is_asked(event: Object) -> bool:
        if how.warnings and event.get("type") != "Warning":
            return False
        return bool(how.about or how.everybody or is_ours(event))

    def put(found: list[Object]) -> None:
        if how.output.is_table:
            rows = (row(event, time.time(), namespaces=how.all_namespaces) for event in found)
            click.echo(printed.text([as_table(headers, rows)]), nl=False)
            return
        for event in found:
            text = name_of(event) + "\n" if how.output.format == "name" else text_of(event, how.output)
            click.echo(text, nl=False)

    is_first = True
    while True:
        found, version = [], ""
        async with aclosing(crud.list_pages(cluster.connection, path, query)) as pages:
            async for page in pages:
                version = crud.list_version(page)
                api = {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
                found += [{**api, **item} for item in page.get("items") or () if is_asked(item)]
        found = [without_managed_fields(event) for event in in_order(found)]
        if not how.watch and how.output.format not in ("table", "wide", "name"):
            click.echo(text_of(as_list(found), how.output), nl=False)
        elif is_first:
            put(found)
        if not how.watch:
            if not found and how.output.is_table:
                where = f" in {namespace} namespace" if namespace else ""
                click.echo(f"No events found{where}.", err=True)
            return
        is_first = False
        try:
            async with aclosing(crud.follow(cluster.connection, path, query, version)) as each:
                async for what, event in each:
                    if what != "DELETED" and is_asked(event):
                        put([without_managed_fields(event)])
        except KubeReadError as error:
            if not crud.must_list_again(error):
                raise
