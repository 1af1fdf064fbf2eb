"""Routes of services: an HTTPRoute with the weights of the mix, and an InferencePool for each instance type.

An HTTPRoute has one weight per instance type, its fraction of all requests: lengths of a request are known to no route.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from autoscaler.demand.lengths import on_grid
from cluster.plans import ServicePlan
from cluster.workloads import InstanceType
from controller.api.labels import API_VERSION, INSTANCE_TYPE_LABEL, ROUTES_LABEL, SERVICE_LABEL
from controller.api.structs import OwnObject, plain
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Write
from controller.kube_world.deployments import deployment_name, instance_label
from controller.report.service_status import ServiceFacts
from controller.report.statuses import Status

MANAGER = "tonnage-routes"
WEIGHTS = 1000
"""Sum of a route's weights. Chosen: thousandths, far below Gateway API's limit of a million."""
MOST_BACKENDS = 16
"""Backends of a route's rule. Source: Gateway API v1, HTTPRouteRule.backendRefs."""
PICKER_PORT = 9002
"""Usual port of endpoint pickers. Source: the charts of Gateway API Inference Extension."""
GATEWAY_API, INFERENCE_API = "gateway.networking.k8s.io/v1", "inference.networking.k8s.io/v1"


def writes_of(owner: OwnObject, plan: ServicePlan, facts: ServiceFacts) -> Iterator[Write]:
    """Server-side applies for one service, pools before the route to them; none where it has no routes or no mix.

    owner: as it was observed. plan, facts: with those of its pools by phase.
    """
    routes = facts.service.routes if facts.service else None
    weights = weights_of(plan, facts) if routes else {}
    if routes is None or not weights:
        return
    meta, refs = owner.metadata, list[dict[str, Any]]()
    for kind, weight in weights.items():
        name = deployment_name(meta.name, kind)
        if routes.picker:
            labels = {SERVICE_LABEL: meta.name, INSTANCE_TYPE_LABEL: instance_label(kind)}
            picker = {"name": routes.picker, "port": {"number": PICKER_PORT}}
            pool = {"selector": {"matchLabels": labels}, "targetPorts": [{"number": routes.port}]}
            yield _applied(owner, INFERENCE_API, "InferencePool", name, {**pool, "endpointPickerRef": picker})
            group = INFERENCE_API.partition("/")[0]
            refs.append({"group": group, "kind": "InferencePool", "name": name, "weight": weight})
        else:
            refs.append({"name": name, "port": routes.port, "weight": weight})
    namespace, _, gateway = routes.gateway.rpartition("/")
    parent = {"name": gateway, **({"namespace": namespace} if namespace else {})}
    hosts = {"hostnames": list(routes.hostnames)} if routes.hostnames else {}
    spec = {"parentRefs": [parent], **hosts, "rules": [{"backendRefs": refs}]}
    yield _applied(owner, GATEWAY_API, "HTTPRoute", meta.name, spec)


def removals_of(owner: OwnObject, before: Status) -> Iterator[Write]:
    """Deletions of what was written for a service whose spec changed and has no routes, or no picker, any more.

    before: its status, of the specification before.
    """
    meta, known = owner.metadata, before.get("observedGeneration", 0)
    if known in (0, meta.generation):
        return
    routes, labelled = plain(owner.spec).get("routes"), {"labelSelector": f"{ROUTES_LABEL}={meta.uid}"}
    if routes is None:
        query = {**labelled, "fieldSelector": f"metadata.name={meta.name}"}
        yield Write("DELETE", f"/apis/{GATEWAY_API}/namespaces/{meta.namespace}/httproutes", query=query)
    if routes is None or not routes.get("picker"):
        yield Write("DELETE", f"/apis/{INFERENCE_API}/namespaces/{meta.namespace}/inferencepools", query=labelled)


def weights_of(plan: ServicePlan, facts: ServiceFacts) -> dict[InstanceType, int]:
    """Whole weights by instance type that add up to `WEIGHTS`; empty where nothing is routed.

    By the demand's fractions of all requests, among the types that have running instances, or all while none has. Where
    phases are apart, requests go to the instances of decode, which ask for the prefill. Largest remainders get what
    rounding leaves.
    """
    demand = facts.service.demand if facts.service else None
    if plan.refusal or plan.routing is None or demand is None:
        return {}
    sent = np.tensordot(on_grid(demand.grid, demand.share, plan.routing.grid), plan.routing.weight, axes=2)
    parts = {t: float(x) for t, x in zip(plan.routing.instance_types, sent, strict=True) if x > 0}
    parts = {t: x for t, x in parts.items() if t.phase != "prefill"}
    served = {t: x for t, x in parts.items() if facts.running.get(t)} or parts
    first = sorted(sorted(served, key=served.__getitem__, reverse=True)[:MOST_BACKENDS])
    exact = {t: WEIGHTS * served[t] / sum(served[each] for each in first) for t in first}
    whole = {t: int(x) for t, x in exact.items()}
    rest = {t: exact[t] - whole[t] for t in first}
    for kind in sorted(rest, key=rest.__getitem__, reverse=True)[: WEIGHTS - sum(whole.values())]:
        whole[kind] += 1
    return whole


def _applied(owner: OwnObject, version: str, kind: str, name: str, spec: Mapping[str, Any]) -> Write:
    """Apply of an object of the service, which is deleted with it. What others wrote there is not taken over."""
    meta, own = owner.metadata, {"apiVersion": API_VERSION, "kind": "ModelService", "controller": True}
    metadata = {
        "name": name,
        "namespace": meta.namespace,
        "labels": {SERVICE_LABEL: meta.name, ROUTES_LABEL: meta.uid},
        "ownerReferences": [{**own, "name": meta.name, "uid": meta.uid}],
    }
    path = f"/apis/{version}/namespaces/{meta.namespace}/{kind.lower()}s/{name}"
    body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": dict(spec)}
    return Write("PATCH", path, body, APPLY_PATCH, {"fieldManager": MANAGER})
