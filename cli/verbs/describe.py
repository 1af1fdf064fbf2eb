"""`tonnage describe`: details of objects, with their pods, conditions and events."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import (
    Cluster,
    Impersonated,
    cluster_options,
    complete_kinds_and_names,
    on_cluster_in_turn,
    target_from,
)
from cli.printing.errors import FAILED, print_error
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from cli.inputs.resource_arguments import ResourceArgument
    from cli.printing.describe_page import Related
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
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
    *,
    all_namespaces: bool,
) -> None:
    """Show objects in detail: status, conditions, cost, mix by GPU type, routing, where their pods run or why they are
    pending, and the decisions about them.

    Supports Tonnage's kinds, nodes and pods; use kubectl describe for other kinds.
    """

    async def work(cluster: Cluster) -> bool:
        if all_namespaces:
            cluster = replace(cluster, namespace="")
        return await _print_pages(cluster, what, selector)

    if not on_cluster_in_turn(target_from(kubeconfig, context, user, timeout_s, namespace), work):
        ctx.exit(FAILED)


async def _print_pages(cluster: Cluster, what: tuple[str, ...], selector: str | None) -> bool:
    from cli.inputs.resource_arguments import parse_resource_arguments
    from cli.printing.describe_page import page
    from controller.api.labels import GROUP
    from controller.kube.request import KubeReadError

    is_whole, pages = True, []
    for argument in parse_resource_arguments(cluster, what):
        if argument.resource.group != GROUP and argument.resource.kind not in ("Node", "Pod"):
            raise ConfigError(
                Mistake(argument.resource.full_name, "is not supported by this verb", "use kubectl describe")
            )
        objects: list[Object] = []
        try:
            objects = await _read(cluster, argument, selector)
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


async def _read(cluster: Cluster, argument: "ResourceArgument", selector: str | None) -> list[Object]:
    from controller.kube import crud

    if argument.names:
        paths = (argument.resource.path(cluster.namespace, name) for name in argument.names)
        return [await crud.read(cluster.connection, path) for path in paths]
    query = {"labelSelector": selector} if selector else {}
    return await crud.list_all(cluster.connection, argument.resource.collection(cluster.namespace), query)


async def _related(cluster: Cluster, resource: "ApiResource", obj: Object) -> "Related":
    from cli.printing.describe_page import Related
    from controller.kube import crud

    metadata = obj["metadata"]
    within = f"/namespaces/{metadata.get('namespace') or 'default'}"
    path = f"/apis/events.k8s.io/v1{within}/events"
    about = f"regarding.kind={resource.kind},regarding.name={metadata['name']}"
    events = await crud.list_all(cluster.connection, path, {"fieldSelector": about})
    pods = await _pods(cluster, obj, within)
    waiting = any(not pod["spec"].get("nodeName") for pod in pods)
    by_name: dict[str, list[Object]] = {}
    if waiting:
        query = {"fieldSelector": "regarding.kind=Pod,type=Warning"}
        for event in await crud.list_all(cluster.connection, path, query):
            by_name.setdefault(event["regarding"].get("name", ""), []).append(event)
    return Related(tuple(events), tuple(pods), by_name)


async def _pods(cluster: Cluster, obj: Object, within: str) -> list[Object]:
    from controller.api.labels import GANG_LABEL, SERVICE_LABEL
    from controller.kube import crud

    name = obj["metadata"]["name"]
    match obj["kind"]:
        case "ModelService":
            path, query = f"/api/v1{within}/pods", {"labelSelector": f"{SERVICE_LABEL}={name}"}
        case "Gang":
            path, query = f"/api/v1{within}/pods", {"labelSelector": f"{GANG_LABEL}={name}"}
        case "Node":
            path, query = "/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"}
        case _:
            return []
    return await crud.list_all(cluster.connection, path, query)
