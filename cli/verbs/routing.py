"""`tonnage routing`: the routing weights of a service in forms that gateways read."""

from typing import Any

import click

from cli.inputs.cluster import (
    Cluster,
    Impersonated,
    cluster_options,
    complete_kinds_and_names,
    on_cluster_in_turn,
    target_from,
)
from cluster.errors import ConfigError, Mistake, TonnageError

Object = dict[str, Any]
FORMS = ("table", "json", "httproute", "configmap")


@click.command(epilog="tonnage routing chat -o httproute --gateway inference | kubectl apply --server-side -f -")
@click.argument("name", metavar="SERVICE", shell_complete=complete_kinds_and_names)
@click.option("-o", "--output", type=click.Choice(FORMS), default="table", show_default=True,
              help="httproute: an HTTPRoute (Gateway API). configmap: the JSON in a ConfigMap.")  # fmt: skip
@click.option("--gateway", metavar="NAME", help="Gateway of the HTTPRoute; NAMESPACE/NAME in another namespace.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Host of the HTTPRoute; may be repeated.")
@click.option("--backend", metavar="PATTERN", default="{service}-{type}", show_default=True,
              help="Name of the backend of an instance type.")  # fmt: skip
@click.option("--backend-kind", type=click.Choice(["Service", "InferencePool"]), default="Service", show_default=True,
              help="Kind of the backends; InferencePool: of the Gateway API Inference Extension.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Port of the backends.")
@cluster_options
def routing(
    name: str,
    output: str,
    gateway: str | None,
    hosts: tuple[str, ...],
    backend: str,
    backend_kind: str,
    port: int,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
) -> None:
    """Print a ModelService's routing weights, for a gateway that sends requests to the instances.

    An HTTPRoute has one backend per instance type of the mix, weighted by its fraction of all requests. Where gateways
    know the lengths of a request, the table of fractions by input and output tokens (json, configmap) serves the mix
    better: that of all requests alone may miss the SLO.
    """
    from cli.printing import routing_output

    if output == "httproute" and not gateway:
        raise ConfigError(Mistake("--gateway", "is missing", "name the Gateway that the HTTPRoute belongs to"))

    async def work(cluster: Cluster) -> Object:
        from controller.kube import crud

        resource = cluster.discovered.named("modelservices")
        path = resource.path(cluster.namespace, name.rpartition("/")[2])
        found = await crud.read_if_there(cluster.connection, path)
        if found is None:
            raise TonnageError(f'modelservices.tonnage.dev "{name}" not found')
        return found

    service = on_cluster_in_turn(target_from(kubeconfig, context, user, timeout_s, namespace), work)
    backends = routing_output.Backends(backend, backend_kind, port)
    if output == "httproute":
        text = routing_output.http_route(service, backends, gateway or "", hosts)
    elif output == "configmap":
        text = routing_output.config_map(service)
    else:
        text = routing_output.as_json(service) if output == "json" else routing_output.as_table(service)
    click.echo(text, nl=False)
