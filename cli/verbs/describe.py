"""`tonnage describe` and `tonnage events`: objects in detail, and the decisions about them, oldest first."""

import time
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import ClusterAccess, LiveCluster, cluster_options, complete_kinds_and_names, on_cluster
from cli.inputs.resources import name_of
from cli.printing.columns import as_table, sheet
from cli.printing.object_output import TABLES, as_list, output_option, text_of, without_managed_fields
from cli.printing.terminal import FAILED, INTERRUPTED, print_error
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from cli.printing.object_pages import Related
    from controller.kube.discovery import ApiResource

Object = dict[str, Any]


@click.command(epilog="tonnage describe modelservice chat")
@click.argument("what", nargs=-1, required=True, metavar="KIND [NAME...] | KIND/NAME...",
                shell_complete=complete_kinds_and_names)  # fmt: skip
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces; not with object names.")
@click.option("-l", "--selector", metavar="SELECTOR", help="Only objects with these labels.")
@cluster_options
@click.pass_context
def describe(
    ctx: click.Context,
    what: tuple[str, ...],
    selector: str | None,
    access: ClusterAccess,
    *,
    all_namespaces: bool,
) -> None:
    """Show objects in detail: status, conditions, cost, mix by GPU type, routing, where their pods run or why they are
    pending, and the decisions about them.

    Supports Tonnage's kinds, nodes and pods; use kubectl describe for other kinds.
    """

    async def work(cluster: LiveCluster) -> bool:
        if all_namespaces:
            cluster = replace(cluster, namespace="")
        from cli.inputs.resources import parse_resource_arguments
        from cli.printing.object_pages import page
        from controller.api.labels import GROUP
        from controller.kube import crud
        from controller.kube.request import KubeReadError

        is_whole, pages = True, []
        for argument in parse_resource_arguments(cluster, what):
            if argument.resource.group != GROUP and argument.resource.kind not in ("Node", "Pod"):
                raise ConfigError(
                    Mistake(argument.resource.full_name, "is not supported by this verb", "use kubectl describe")
                )
            objects: list[Object] = []
            try:
                if argument.names:
                    paths = [argument.resource.path(cluster.namespace, name) for name in argument.names]
                    objects = [await crud.read(cluster.connection, path) for path in paths]
                else:
                    path = argument.resource.collection(cluster.namespace)
                    query = {"labelSelector": selector} if selector else {}
                    objects = await crud.list_all(cluster.connection, path, query)
            except KubeReadError as error:
                print_error(error)
                is_whole = False
            api = {"apiVersion": argument.resource.api_version, "kind": argument.resource.kind}
            for obj in objects:
                whole = {**api, **obj}
                pages.append(page(whole, await _related(cluster, argument.resource, whole), time.time()))
        click.echo("\n\n".join(pages), nl=False)
        if not pages and is_whole:
            click.echo("No resources found", err=True)
        return is_whole

    if not on_cluster(access, work):
        ctx.exit(FAILED)


async def _related(cluster: LiveCluster, resource: "ApiResource", obj: Object) -> "Related":
    """Events about an object, its pods, and warnings about those where one waits for a node."""
    from cli.printing.object_pages import Related
    from controller.api.labels import GANG_LABEL, SERVICE_LABEL
    from controller.kube import crud

    name, within = obj["metadata"]["name"], f"/namespaces/{obj['metadata'].get('namespace') or 'default'}"
    path = f"/apis/events.k8s.io/v1{within}/events"
    about = f"regarding.kind={resource.kind},regarding.name={name}"
    events = await crud.list_all(cluster.connection, path, {"fieldSelector": about})
    queries = {
        "ModelService": (f"/api/v1{within}/pods", {"labelSelector": f"{SERVICE_LABEL}={name}"}),
        "Gang": (f"/api/v1{within}/pods", {"labelSelector": f"{GANG_LABEL}={name}"}),
        "Node": ("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"}),
    }
    asked = queries.get(obj["kind"])
    pods = await crud.list_all(cluster.connection, *asked) if asked else []
    by_name: dict[str, list[Object]] = {}
    if any(not pod["spec"].get("nodeName") for pod in pods):
        query = {"fieldSelector": "regarding.kind=Pod,type=Warning"}
        for event in await crud.list_all(cluster.connection, path, query):
            by_name.setdefault(event["regarding"].get("name", ""), []).append(event)
    return Related(tuple(events), tuple(pods), by_name)


@click.command(epilog="tonnage events --for modelservice/chat -w")
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@click.option("--for", "target", metavar="KIND/NAME", help="Only events about this object, from any source.")
@click.option("--all-sources", is_flag=True, help="Include events from other sources about other objects.")
@click.option("--warnings", is_flag=True, help="Only warnings.")
@click.option("-w", "--watch", is_flag=True, help="Keep showing new events until Ctrl-C.")
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
@output_option
@cluster_options
@click.pass_context
def events(
    ctx: click.Context,
    /,
    target: str | None,
    output: str,
    access: ClusterAccess,
    *,
    no_headers: bool,
    all_namespaces: bool,
    all_sources: bool,
    warnings: bool,
    watch: bool,
) -> None:
    """Show what Tonnage decided and why: binds, evictions, scalings, unplaced pods.

    By default an API server keeps events for one hour.
    """
    kind, _, name = (target or "").partition("/")
    if target and not (kind and name):
        raise ConfigError(Mistake(f"--for {target}", "should be KIND/NAME"))

    async def work(cluster: LiveCluster) -> None:
        from cli.printing.object_pages import HEADERS, in_order, is_ours, row
        from controller.kube import crud

        resource = cluster.discovered.named(kind) if target else None
        namespace = "" if all_namespaces else cluster.namespace
        # Events about cluster-scoped objects are stored in `default`.
        if resource and not resource.is_namespaced:
            namespace = "default"
        path = f"/apis/events.k8s.io/v1{f'/namespaces/{namespace}' if namespace else ''}/events"
        query = {"fieldSelector": f"regarding.kind={resource.kind},regarding.name={name}"} if resource else {}
        headers = ("NAMESPACE", *HEADERS) if all_namespaces else HEADERS
        printed = sheet(headers=not no_headers)

        def is_wanted(event: Object) -> bool:
            if warnings and event.get("type") != "Warning":
                return False
            return bool(target or all_sources or is_ours(event))

        def print_events(found: list[Object]) -> None:
            if output in TABLES:
                rows = (row(event, time.time(), namespaces=all_namespaces) for event in found)
                click.echo(printed.text([as_table(headers, rows)]), nl=False)
                return
            for event in found:
                text = name_of(event) + "\n" if output == "name" else text_of(event, output)
                click.echo(text, nl=False)

        api, is_first = {"apiVersion": "events.k8s.io/v1", "kind": "Event"}, True
        async with aclosing(crud.watched(cluster.connection, path, query)) as changes:
            async for each in changes:
                if isinstance(each, tuple):
                    if each[0] != "DELETED" and is_wanted(each[1]):
                        print_events([without_managed_fields(each[1])])
                    continue
                items = [{**api, **item} for page in each for item in page.get("items") or () if is_wanted(item)]
                found = [without_managed_fields(event) for event in in_order(items)]
                if not watch and output not in ("table", "wide", "name"):
                    click.echo(text_of(as_list(found), output), nl=False)
                elif is_first:
                    print_events(found)
                if not watch:
                    if not found and output in TABLES:
                        where = f" in {namespace} namespace" if namespace else ""
                        click.echo(f"No events found{where}.", err=True)
                    return
                is_first = False

    try:
        on_cluster(access, work)
    except KeyboardInterrupt:
        ctx.exit(INTERRUPTED)
