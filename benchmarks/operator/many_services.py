"""Generated cluster with many services: 20 services, five GPU types and 1,000 nodes by default, as manifests.

Throughputs come from the roofline model (`benchmarks.roofline`), so they are synthetic.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.roofline import CHIPS, GRID, Chip, lognormal_share, roofline_table
from cluster.arrays import FloatArray
from cluster.demand import Slo

API = "tonnage.dev/v1alpha1"
TYPES: Mapping[str, Chip] = {
    **{name.lower(): chip for name, chip in CHIPS.items()},
    "l40s": Chip(864e9, 362e12, 48e9, 1.86),
}
"""Sources: vendors' data sheets, dense half precision; the price of the L40S is a cloud list price (AWS g6e.xlarge)."""
SLOS = {"40ms": 0.04, "80ms": 0.08, "120ms": 0.12}
GPUS_PER_NODE = 8

Object = dict[str, Any]


def fleet(nodes: int) -> list[Object]:
    """Node manifests, the types in turn, eight GPUs each."""
    names = sorted(TYPES)
    return [_node(f"node-{number:05d}", names[number % len(names)]) for number in range(nodes)]


def _node(name: str, gpu_type: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": gpu_type}},
        "status": {"allocatable": {"cpu": "192", "memory": "2048Gi", "nvidia.com/gpu": str(GPUS_PER_NODE)}},
    }


def definitions() -> list[Object]:
    """GPU types, and the profiles of the one model that all services serve."""
    return [
        *(_gpu_type(name, chip) for name, chip in TYPES.items()),
        *(_profile(name, chip) for name, chip in TYPES.items()),
    ]


def _gpu_type(name: str, chip: Chip) -> Object:
    spec = {
        "nodeLabel": {"values": [name]},
        "memory": f"{chip.memory_bytes / 1e9:g}G",
        "pricePerHour": {"onDemand": chip.price_per_hour},
    }
    return {"apiVersion": API, "kind": "GPUType", "metadata": {"name": name}, "spec": spec}


def _profile(gpu_type: str, chip: Chip) -> Object:
    tables = {label: roofline_table(chip, GRID, Slo(tpot_s)) for label, tpot_s in SLOS.items()}
    spec = {
        "model": "model",
        "gpuType": gpu_type,
        "grid": _grid(),
        "throughput": [
            {"slo": {"tpot": label}, "requestsPerSecond": np.round(table, 6).tolist()}
            for label, table in tables.items()
            if table.any()
        ],
    }
    return {"apiVersion": API, "kind": "ModelProfile", "metadata": {"name": f"model-{gpu_type}"}, "spec": spec}


def services(count: int, gpus: int, seed: int, load: float = 0.4) -> list[Object]:
    """Services with random lengths, SLOs and rates. load: fraction of the fleet's dollars that they need, roughly.

    gpus: of the whole fleet. A service's rate makes it cost the same as the others within a factor of four, if it used
    only the type that is cheapest for its mean request.
    """
    chance = np.random.default_rng(seed)
    dollars = load * gpus * float(np.mean([chip.price_per_hour for chip in TYPES.values()]))
    weights = chance.uniform(0.5, 2.0, count)
    each = dollars * weights / weights.sum()
    return [_service(number, float(share), chance) for number, share in enumerate(each)]


def _service(number: int, dollars: float, chance: np.random.Generator) -> Object:
    label = str(chance.choice(list(SLOS)))
    histogram = _histogram(chance, Slo(SLOS[label]))
    tables = {name: roofline_table(chip, GRID, Slo(SLOS[label])) for name, chip in TYPES.items()}
    served = histogram > 0
    rate = dollars / float((_cheapest_dollars(tables)[served] * histogram[served]).sum())
    demand = {"requestsPerSecond": round(rate, 3), **_grid(), "histogram": np.round(histogram, 9).tolist()}
    template = {"spec": {"containers": [{"name": "server", "image": "example.com/server:1"}]}}
    spec = {
        "model": "model",
        "slo": {"tpot": label},
        "demand": demand,
        "instance": {"cpu": "8", "memory": "48Gi"},
        "template": template,
    }
    metadata = {"name": f"service-{number:02d}", "namespace": "default"}
    return {"apiVersion": API, "kind": "ModelService", "metadata": metadata, "spec": spec}


def _histogram(chance: np.random.Generator, slo: Slo) -> FloatArray:
    """Histogram of independent log-normal lengths, without rare buckets and those that no type serves at this SLO."""
    prompt, answer = float(chance.uniform(60, 3000)), float(chance.uniform(80, 500))
    share = np.outer(
        lognormal_share(GRID.input_tokens, prompt, float(chance.uniform(0.5, 1.2))),
        lognormal_share(GRID.output_tokens, answer, float(chance.uniform(0.4, 0.9))),
    )
    tables = {name: roofline_table(chip, GRID, slo) for name, chip in TYPES.items()}
    share[~np.isfinite(_cheapest_dollars(tables))] = 0.0
    share[share < 1e-4] = 0.0
    kept: FloatArray = share / share.sum()
    return kept


def _cheapest_dollars(tables: Mapping[str, FloatArray]) -> FloatArray:
    """Dollars per hour and request per second on the cheapest type, shape of the grid; inf where none can."""
    rated = [
        np.divide(TYPES[name].price_per_hour, table, out=np.full(table.shape, np.inf), where=table > 0)
        for name, table in tables.items()
    ]
    least: FloatArray = np.min(rated, axis=0)
    return least


def _grid() -> dict[str, Sequence[int]]:
    return {"inputTokens": list(GRID.input_tokens), "outputTokens": list(GRID.output_tokens)}
