"""Random small fleets with model services, as manifests: instances for comparing the mix with an exact model."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Manifest = dict[str, Any]

OURS = "tonnage.dev/v1alpha1"
GIB = 2**30
PRODUCT_LABEL = "nvidia.com/gpu.product"
CAPACITY_LABEL = "karpenter.sh/capacity-type"
INPUT_EDGES = ((400, 2000), (200, 1000, 2000), (2000,))
OUTPUT_EDGES = ((100, 400), (200, 400), (50, 100, 400))
SHORT_EDGES = (400,)
"""Input edges of profiles that were never measured on long prompts."""
TPOTS_S = (0.03, 0.06, 0.12)
POOLS = ("a", "b", "c")
MOST_IMPORTANT = 1000
"""Priority of running pods, so that no plan stops them for a service."""
TAINT = {"key": "team", "value": "blue", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Switches:
    """Features that an instance may have besides those that all have."""

    selectors: bool = False
    """Whether services that keep to some nodes share them with services that may use others too, so that a plan must
    arrange the seats and not only count them. Off: no service has a selector, an affinity or a toleration."""
    resources: bool = False
    """Whether instances request CPU and memory that nodes may lack."""
    widths: bool = False
    """Whether a model has profiles of several widths on one GPU type at one SLO."""
    spot_nodes: bool = False
    """Whether nodes are labelled spot and on-demand."""


def random_manifests(seed: int, switches: Switches = Switches()) -> list[Manifest]:
    """One to four services and up to five GPU types, with nodes or with an inventory per type."""
    rng = np.random.default_rng([seed, 17])
    types = [f"t{g}" for g in range(int(rng.integers(1, 6)))]
    has_nodes = rng.random() < 0.75
    made = [_gpu_type(rng, name, has_nodes=has_nodes) for name in types]
    nodes = [_node(rng, f"n{v}", types, switches) for v in range(int(rng.integers(2, 11)))] if has_nodes else []
    services, profiles = [], []
    for k in range(int(rng.integers(1, 5))):
        service, own = _service(rng, k, types, switches, has_nodes=has_nodes)
        services.append(service)
        profiles.extend(own)
    return [*made, *profiles, *services, *nodes, *_pods(rng, nodes, services, profiles)]


def _gpu_type(rng: np.random.Generator, name: str, *, has_nodes: bool) -> Manifest:
    price = {"onDemand": round(float(rng.uniform(0.5, 8)), 2)}
    if rng.random() < 0.5:
        price["spot"] = round(price["onDemand"] * float(rng.uniform(0.3, 0.7)), 2)
    spec: Manifest = {"nodeLabel": {"values": [name.upper()]}, "memory": "80Gi", "pricePerHour": price}
    if not has_nodes and rng.random() < 0.7:
        spec["inventory"] = int(rng.integers(0, 14))
    return {"apiVersion": OURS, "kind": "GPUType", "metadata": {"name": name}, "spec": spec}


def _node(rng: np.random.Generator, name: str, types: list[str], switches: Switches) -> Manifest:
    gpus = int(rng.choice((1, 2, 4, 8, 8)))
    labels = {PRODUCT_LABEL: str(rng.choice(types)).upper(), "pool": str(rng.choice(POOLS)), "rank": name[1:]}
    if switches.spot_nodes:
        labels[CAPACITY_LABEL] = "spot" if rng.random() < 0.4 else "on-demand"
    cpu, memory = (rng.choice((8, 32, 96)), rng.choice((64, 512))) if switches.resources else (1000, 8000)
    spec: Manifest = {"taints": [TAINT]} if rng.random() < 0.15 else {}
    spec |= {"unschedulable": True} if rng.random() < 0.1 else {}
    allocatable = {"cpu": str(cpu), "memory": f"{memory}Gi", "nvidia.com/gpu": str(gpus)}
    status: Manifest = {"allocatable": allocatable}
    if rng.random() < 0.05:
        status["conditions"] = [{"type": "Ready", "status": "False"}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}} | {
        "spec": spec,
        "status": status,
    }


def _service(
    rng: np.random.Generator, k: int, types: list[str], switches: Switches, *, has_nodes: bool
) -> tuple[Manifest, list[Manifest]]:
    """A service with the profiles of its own model."""
    usable = sorted(str(name) for name in rng.choice(types, int(rng.integers(1, len(types) + 1)), replace=False))
    tpot_s = float(rng.choice(TPOTS_S[1:]))
    profiles = [
        _profile(rng, k, name, width, tpot_s, is_measured_fully=name == usable[0])
        for name in usable
        for width in _widths(rng, switches)
    ]
    spec: Manifest = {
        "model": f"m{k}",
        "slo": {"tpot": _ms(tpot_s)},
        "demand": _demand(rng),
        "split": "continuous" if rng.random() < 0.3 else "sliced",
        "sliceFactor": int(rng.choice((1, 2, 4, 8))),
        "priority": int(rng.choice((0, 0, 10, 20))),
        "spot": bool(rng.random() < 0.3),
    }
    if rng.random() < 0.6:
        spec["headroom"] = float(rng.choice((0.0, 0.1, 0.25)))
    if rng.random() < 0.2:
        spec["gpuTypes"] = usable[:1] if rng.random() < 0.5 else usable
    if switches.resources:
        cpu, memory = rng.choice((0, 4, 8, 16)), rng.choice((0, 16, 64))
        spec["instance"] = {"cpu": str(cpu), "memory": f"{memory}Gi"}
    constraints = _constraints(rng) if has_nodes and switches.selectors else {}
    if constraints:
        spec["template"] = {"spec": {"containers": [{"name": "c", "image": "i"}], **constraints}}
    metadata = {"name": f"s{k}", "namespace": "default"}
    return {"apiVersion": OURS, "kind": "ModelService", "metadata": metadata, "spec": spec}, profiles


def _widths(rng: np.random.Generator, switches: Switches) -> list[int]:
    if switches.widths and rng.random() < 0.5:
        return sorted(int(width) for width in rng.choice((1, 2, 4, 8), 2, replace=False))
    return [int(rng.choice((1, 1, 1, 2, 4)))]


def _profile(
    rng: np.random.Generator, k: int, gpu_type: str, width: int, tpot_s: float, *, is_measured_fully: bool
) -> Manifest:
    inputs = INPUT_EDGES[int(rng.integers(0, 3))] if is_measured_fully or rng.random() < 0.8 else SHORT_EDGES
    outputs = OUTPUT_EDGES[int(rng.integers(0, 3))]
    speed = float(rng.uniform(1, 6)) * width ** float(rng.uniform(0.6, 1.2))
    table = np.array([[speed * 400 / (100 + i / 8 + j) for j in outputs] for i in inputs])
    table *= rng.uniform(0.6, 1.4, table.shape)
    if not is_measured_fully:
        table[rng.random(table.shape) < 0.2] = 0.0
        table[0, 0] = max(table[0, 0], 0.5)
    tighter = TPOTS_S[TPOTS_S.index(tpot_s) - 1]
    slos = {tpot_s: 1.0} if rng.random() < 0.6 else {tpot_s: 1.0, tighter: 0.6}
    slos = {tighter: 0.6} if rng.random() < 0.1 else slos
    return {
        "apiVersion": OURS,
        "kind": "ModelProfile",
        "metadata": {"name": f"m{k}-{gpu_type}-x{width}"},
        "spec": {
            "model": f"m{k}",
            "gpuType": gpu_type,
            "gpusPerInstance": width,
            "grid": {"inputTokens": list(inputs), "outputTokens": list(outputs)},
            "throughput": [
                {"slo": {"tpot": _ms(slo)}, "requestsPerSecond": (table * part).round(3).tolist()}
                for slo, part in slos.items()
            ],
        },
    }


def _demand(rng: np.random.Generator) -> Manifest:
    inputs, outputs = INPUT_EDGES[int(rng.integers(0, 3))], OUTPUT_EDGES[int(rng.integers(0, 3))]
    parts = rng.integers(0, 4, (len(inputs), len(outputs)))
    parts[0, 0] += 1
    return {
        "requestsPerSecond": round(float(rng.uniform(0.5, 14)), 2),
        "inputTokens": list(inputs),
        "outputTokens": list(outputs),
        "histogram": (parts / parts.sum()).tolist(),
    }


def _constraints(rng: np.random.Generator) -> Manifest:
    found: Manifest = {}
    if rng.random() < 0.25:
        found["nodeSelector"] = {"pool": str(rng.choice(POOLS))}
    if rng.random() < 0.25:
        terms = [{"matchExpressions": [_requirement(rng)]} for _ in range(int(rng.integers(1, 3)))]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        found["affinity"] = {"nodeAffinity": required}
    if rng.random() < 0.3:
        found["tolerations"] = [{"key": "team", "operator": "Equal", "value": "blue"}]
    return found


def _requirement(rng: np.random.Generator) -> Manifest:
    operator = str(rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")))
    if operator in ("In", "NotIn"):
        values = [str(name) for name in rng.choice(POOLS, 2, replace=False)]
        return {"key": "pool", "operator": operator, "values": values}
    if operator in ("Gt", "Lt"):
        return {"key": "rank", "operator": operator, "values": [str(int(rng.integers(1, 7)))]}
    return {"key": "pool" if operator == "Exists" else "quarantine", "operator": operator}


def _pods(
    rng: np.random.Generator, nodes: list[Manifest], services: list[Manifest], profiles: list[Manifest]
) -> list[Manifest]:
    """Pods that run: strangers on some nodes, and instances of some services."""
    pods = []
    left = {node["metadata"]["name"]: _room(node) for node in nodes}
    for node in nodes:
        name = node["metadata"]["name"]
        if rng.random() < 0.4:
            gpus = int(rng.integers(1, left[name][0] + 1))
            pods.append(_pod(f"other-{name}", name, gpus, 1, 1))
            left[name] = (left[name][0] - gpus, left[name][1] - 1, left[name][2] - GIB)
    for service in services:
        if nodes and rng.random() < 0.35:
            own = [p["spec"] for p in profiles if p["spec"]["model"] == service["spec"]["model"]]
            pods += _instances(rng, service, own, nodes, left)
    return pods


def _instances(
    rng: np.random.Generator,
    service: Manifest,
    profiles: list[Manifest],
    nodes: list[Manifest],
    left: dict[str, tuple[int, int, int]],
) -> list[Manifest]:
    """Running instances of a service where there is room, on open nodes without constraints."""
    spec = service["spec"]
    if "template" in spec or spec["spot"]:
        return []
    instance = spec.get("instance", {"cpu": "0", "memory": "0Gi"})
    cpu, memory = int(instance["cpu"]), int(instance["memory"].removesuffix("Gi"))
    pods = []
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        fitting = [p for p in profiles if p["gpuType"].upper() == labels[PRODUCT_LABEL]]
        if not fitting or node["spec"] or "conditions" in node["status"] or labels.get(CAPACITY_LABEL) == "spot":
            continue
        allowed = spec.get("gpuTypes") or [p["gpuType"] for p in fitting]
        width = fitting[0]["gpusPerInstance"]
        gpus, cores, held = left[name]
        if fitting[0]["gpuType"] in allowed and gpus >= width and cores >= cpu and held >= memory * GIB:
            label = {"tonnage.dev/service": service["metadata"]["name"]}
            type_of = {"tonnage.dev/gpu-types": fitting[0]["gpuType"]}
            about = {"labels": label, "annotations": type_of}
            pods.append(_pod(f"{service['metadata']['name']}-on-{name}", name, width, cpu, memory, **about))
            left[name] = (gpus - width, cores - cpu, held - memory * GIB)
        if len(pods) == 2 or rng.random() < 0.3:
            break
    return pods


def _room(node: Manifest) -> tuple[int, int, int]:
    has = node["status"]["allocatable"]
    return int(has["nvidia.com/gpu"]), int(has["cpu"]), int(has["memory"].removesuffix("Gi")) * GIB


def _pod(name: str, node: str, gpus: int, cpu: int, memory_gib: int, **metadata: Any) -> Manifest:
    requests = {"cpu": str(cpu), "memory": f"{memory_gib}Gi"}
    container = {"name": "c", "resources": {"requests": requests, "limits": {"nvidia.com/gpu": gpus}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"containers": [container], "nodeName": node, "priority": MOST_IMPORTANT},
        "status": {"phase": "Running"},
    }


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
