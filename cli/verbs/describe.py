"""`tonnage describe`: details of objects, with their pods, conditions and events."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import (
    ClusterAccess,
    LiveCluster,
    cluster_options,
    complete_kinds_and_names,
    on_cluster_in_turn,
)
from cli.printing.terminal import FAILED, print_error
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

    if not on_cluster_in_turn(access, work):
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
