"""`tonnage routing`: the routing weights of a service in forms that gateways read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import yaml

from cli.inputs import cluster as inputs_cluster
from cli.inputs.options import output_choice, setting
from cli.printing.columns import columns
from cli.printing.object_pages import buckets, by_length, routing_of, type_of
from cluster.errors import ConfigError, Mistake, TonnageError
from controller.api.labels import SERVICE_LABEL

Object = dict[str, Any]

FORMS = ("table", "json", "httproute")


@click.command(epilog="tonnage routing chat -o httproute --gateway inference | kubectl apply --server-side -f -")
@click.argument("name", metavar="SERVICE", shell_complete=inputs_cluster.complete_kinds_and_names)
@output_choice(*FORMS, words="httproute: an HTTPRoute (Gateway API).")
@click.option("--gateway", metavar="NAME", help="Gateway of the HTTPRoute; NAMESPACE/NAME in another namespace.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Host of the HTTPRoute; may be repeated.")
@setting("--backend", "{service}-{type}", "Name of the backend of an instance type.", metavar="PATTERN")
@setting("--backend-kind", "Service", "Kind of the backends; InferencePool: of the Gateway API Inference Extension.",
         click.Choice(["Service", "InferencePool"]))  # fmt: skip
@click.option("--phase", type=click.Choice(["prefill", "decode"]), help="Pool of the HTTPRoute, where they are apart.")
@setting("--port", 8000, "Port of the backends.", click.IntRange(1, 65535))
@inputs_cluster.cluster_options
def routing(
    name: str,
    output: str,
    gateway: str | None,
    hosts: tuple[str, ...],
    backend: str,
    backend_kind: str,
    port: int,
    phase: str | None,
    access: inputs_cluster.ClusterAccess,
) -> None:
    """Print a ModelService's routing weights, for a gateway that sends requests to the instances.

    An HTTPRoute has one backend per instance type of the mix, weighted by its fraction of all requests. Where gateways
    know the lengths of a request, the table of fractions by input and output tokens (json) serves the mix
    better: that of all requests alone may miss the SLO.
    """
    if output == "httproute" and not gateway:
        raise ConfigError(Mistake("--gateway", "is missing", "name the Gateway that the HTTPRoute belongs to"))

    async def work(cluster: inputs_cluster.LiveCluster) -> Object:
        from controller.kube import crud

        resource = cluster.discovered.named("modelservices")
        path = resource.path(cluster.namespace, name.rpartition("/")[2])
        found = await crud.read_if_there(cluster.connection, path)
        if found is None:
            raise TonnageError(f'modelservices.tonnage.dev "{name}" not found')
        return found

    service = inputs_cluster.on_cluster(access, work)
    if output == "httproute":
        text = http_route(service, Backends(backend, backend_kind, port), gateway or "", hosts, phase)
    else:
        text = as_json(service) if output == "json" else as_table(service)
    click.echo(text, nl=False)


WEIGHTS = 1000
"""Sum of an HTTPRoute's weights. Chosen: thousandths, far below Gateway API's limit of a million."""


@dataclass(frozen=True, slots=True)
class Backends:
    """Backends of an HTTPRoute: one per instance type."""

    pattern: str
    """Name, of `{service}` and `{type}`."""
    kind: str
    port: int

    def of(self, service: str, instance_type: str) -> Object:
        """Reference to the backend of one instance type. Raises ConfigError for a pattern with other fields."""
        try:
            name = self.pattern.format(service=service, type=instance_type.replace("/", "-"))
        except (KeyError, IndexError, ValueError) as error:
            remedy = "write {service} and {type} where their names belong"
            raise ConfigError(Mistake("--backend", f"{self.pattern!r} is no pattern", remedy)) from error
        if self.kind == "Service":
            return {"name": name, "port": self.port}
        return {"group": "inference.networking.k8s.io", "kind": self.kind, "name": name}


def as_table(service: Object) -> str:
    """Fraction of all requests by instance type, then of the requests of each length."""
    rows = [(name, f"{100 * fraction:.1f} %") for name, fraction in fractions(service).items()]
    return columns(("INSTANCE TYPE", "% OF REQUESTS"), rows) + "\n" + by_length(service)


def as_json(service: Object) -> str:
    """Fractions of all requests, and by length; the same input gives the same text."""
    name, namespace = service["metadata"]["name"], service["metadata"].get("namespace", "default")
    record = {"record": 1, "service": f"{namespace}/{name}", "shares": fractions(service), "buckets": buckets(service)}
    return json.dumps(record, indent=2) + "\n"


def http_route(
    service: Object, backends: Backends, gateway: str, hosts: Sequence[str], phase: str | None = None
) -> str:
    """HTTPRoute SERVICE-routing with a weighted backend per instance type, as YAML; of one pool SERVICE-routing-PHASE.

    Raises ConfigError where prefill and decode are apart and no phase is named.
    """
    shares = {t: part for t, part in fractions(service).items() if phase is None or t.startswith(f"{phase}/")}
    if not shares or (phase is None and any("/" in name for name in shares)):
        problem = f"is {phase or 'missing'}, and the service's pools are {', '.join(fractions(service))}"
        raise ConfigError(Mistake("--phase", problem, "name the one whose instances get the route's requests"))
    namespace, _, name = gateway.rpartition("/")
    parent = {"name": name} | ({"namespace": namespace} if namespace else {})
    own = service["metadata"]["name"]
    refs = [{**backends.of(own, each), "weight": weight} for each, weight in weights(shares).items()]
    spec = {"parentRefs": [parent], **({"hostnames": list(hosts)} if hosts else {}), "rules": [{"backendRefs": refs}]}
    about = service["metadata"]
    owner = {
        "apiVersion": service.get("apiVersion", "tonnage.dev/v1alpha1"),
        "kind": "ModelService",
        "name": about["name"],
        "uid": about.get("uid", ""),
    }
    metadata = {
        "name": f"{about['name']}-routing{'-' if phase else ''}{phase or ''}",
        "namespace": about.get("namespace", "default"),
        "labels": {SERVICE_LABEL: about["name"]},
        "ownerReferences": [owner],
    }
    obj = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": spec}
    text: str = yaml.safe_dump(obj, sort_keys=False, width=120)
    return text


def weights(fractions_: Mapping[str, float]) -> dict[str, int]:
    """Whole weights that add up to WEIGHTS: largest remainders get what rounding leaves."""
    exact = {name: WEIGHTS * fraction for name, fraction in fractions_.items()}
    whole = {name: int(each) for name, each in exact.items()}
    rest = sorted(exact, key=lambda name: (whole[name] - exact[name], name))
    for name in rest[: WEIGHTS - sum(whole.values())]:
        whole[name] += 1
    return whole


def fractions(service: Object) -> dict[str, float]:
    """Fraction of all requests that goes to each instance type, by the histogram of the service's demand; of a phase
    that has a pool of its own, among the types of this pool."""
    share = _histogram(service)
    found: dict[str, dict[str, float]] = {}
    for each in routing_of(service)["weights"]:
        parts = (float(share[i][j]) * float(to) for i, row in enumerate(each["share"]) for j, to in enumerate(row))
        found.setdefault(each.get("phase", "all"), {})[type_of(each)] = sum(parts)
    pools = {phase: whole for phase, each in found.items() if (whole := sum(each.values()))}
    if not pools:
        raise TonnageError(f"{service['metadata']['name']}: no bucket of its demand has routing weights")
    return {
        name: round(part / pools[phase], 9)
        for phase in sorted(pools)
        for name, part in sorted(found[phase].items())
        if part > 0
    }


def _histogram(service: Object) -> Sequence[Sequence[float]]:
    """Fraction of the requests in each bucket; the same for all where the spec has none of these buckets."""
    demand, routing = service["spec"].get("demand") or {}, routing_of(service)
    edges = ("inputTokens", "outputTokens")
    if [demand.get(each) for each in edges] == [routing[each] for each in edges]:
        histogram: Sequence[Sequence[float]] = demand["histogram"]
        return histogram
    return [[1.0] * len(routing["outputTokens"]) for _ in routing["inputTokens"]]
