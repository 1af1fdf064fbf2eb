"""Generated clusters with many services, as manifests: on a stock that barely holds them, and on large fleets.

Throughputs are made up or come from the roofline model, so they are synthetic."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster.arrays import FloatArray
from cluster.demand import Slo
from tests.mix_exact.fleets import OURS, Manifest
from tests.mix_exact.oracle import Service, fleet_of, room_for
from tests.rigs.serving_profiles import CHIPS, GRID, Chip, lognormal_share, roofline_table

PRICES = (0.7, 1.01, 2.2, 3.67, 7.5)
"""On-demand dollars per hour of the first five types; further ones repeat them a little dearer."""
INPUT_EDGES, OUTPUT_EDGES = (500, 2000, 8000), (100, 250, 500, 1000)


def tight_manifests(seed: int, services: int = 12, types: int = 5, *, slack: float = 1.0) -> list[Manifest]:
    """Services and an inventory per GPU type."""
    rng = np.random.default_rng([seed, services, types])
    prices = [PRICES[g % 5] * 1.1 ** (g // 5) for g in range(types)]
    made = [_priced_type(f"t{g}", price) for g, price in enumerate(prices)]
    for k in range(services):
        service, profiles = _tight_service(rng, k, prices)
        made += [*profiles, service]
    used: Counter[str] = Counter()
    specs = {each["metadata"]["name"]: each["spec"] for each in made if each["kind"] == "ModelService"}
    for known in fleet_of(made).services:
        counts, factor = _solution(rng, known)
        demand = specs[known.name.rpartition("/")[2]]["demand"]
        demand["requestsPerSecond"] = math.floor(1000 * factor * demand["requestsPerSecond"]) / 1000
        used.update(counts)
    for each in made:
        if each["kind"] == "GPUType":
            each["spec"]["inventory"] = int(slack * used[each["metadata"]["name"]])
    return made


def _priced_type(name: str, price: float) -> Manifest:
    spec = {"nodeLabel": {"values": [name.upper()]}, "memory": "80Gi", "pricePerHour": {"onDemand": round(price, 3)}}
    return {"apiVersion": OURS, "kind": "GPUType", "metadata": {"name": name}, "spec": spec}


def _tight_service(
    rng: np.random.Generator, k: int, prices: Sequence[float], instances: float = 7.0
) -> tuple[Manifest, list[Manifest]]:
    """A service that would keep about so many instances of a middling type busy, with a profile per type."""
    shape = (len(INPUT_EDGES), len(OUTPUT_EDGES))
    share = rng.random(shape) ** 2 + 0.01
    tables = [_table(rng, price, g) for g, price in enumerate(prices)]
    middling = tables[5 * (len(tables) // 10) + 2]
    rate = instances * float(rng.uniform(0.4, 1.6)) / float((share / share.sum() / middling).sum())
    profiles = [_tight_profile(k, f"t{g}", table) for g, table in enumerate(tables)]
    spec: Manifest = {
        "model": f"m{k}",
        "slo": {"tpot": "60ms"},
        "demand": {
            "requestsPerSecond": round(rate, 3),
            "inputTokens": list(INPUT_EDGES),
            "outputTokens": list(OUTPUT_EDGES),
            "histogram": (share / share.sum()).tolist(),
        },
        "sliceFactor": 8,
        "priority": int(rng.choice((0, 0, 10))),
    }
    if rng.random() < 0.5:
        spec["headroom"] = 0.1
    metadata = {"name": f"s{k:02}", "namespace": "default"}
    return {"apiVersion": OURS, "kind": "ModelService", "metadata": metadata, "spec": spec}, profiles


def _table(rng: np.random.Generator, price: float, g: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Requests per second: dearer types are faster, most so with long requests; the cheapest cannot serve those."""
    inputs, outputs = np.array(INPUT_EDGES)[:, None], np.array(OUTPUT_EDGES)[None, :]
    long = inputs / 4 + outputs
    table = 4 * price ** rng.uniform(0.8, 1.1) * 500 / (200 + long * price ** rng.uniform(-0.25, 0.05))
    table = table * rng.uniform(0.8, 1.25, table.shape)
    if g % 5 < 2:
        table[-1, -(2 - g % 5) :] = 0.0
    return np.asarray(table.round(4))


def _tight_profile(k: int, gpu_type: str, table: np.ndarray[Any, np.dtype[np.float64]]) -> Manifest:
    return {
        "apiVersion": OURS,
        "kind": "ModelProfile",
        "metadata": {"name": f"m{k}-{gpu_type}"},
        "spec": {
            "model": f"m{k}",
            "gpuType": gpu_type,
            "grid": {"inputTokens": list(INPUT_EDGES), "outputTokens": list(OUTPUT_EDGES)},
            "throughput": [{"slo": {"tpot": "60ms"}, "requestsPerSecond": table.tolist()}],
        },
    }


def _solution(rng: np.random.Generator, service: Service) -> tuple[Mapping[str, int], float]:
    """Instances on two GPU types that serve the service, and the factor on its demand that fills one of them."""
    loads = np.array([offer.loads for offer in service.offers])
    variances = np.array([offer.variances for offer in service.offers])
    whole = np.flatnonzero(np.isfinite(loads).all(axis=1))
    first = int(rng.choice(whole))
    second = int(rng.choice([g for g in range(len(loads)) if g != first]))
    # The second type takes the buckets at which it is best, compared with the first.
    advantage = loads[first] / loads[second]
    goes = advantage > np.quantile(advantage, rng.uniform(0.3, 0.8))
    pools = [
        (service.offers[g].gpu_type, float(loads[g][at].sum()), float(variances[g][at].sum()))
        for g, at in ((first, ~goes), (second, goes))
    ]
    counts = {name: math.ceil(room_for(service, load, variance)) for name, load, variance in pools}
    low, high = 1.0, 3.0
    for _ in range(40):
        factor = (low + high) / 2
        holds = all(room_for(service, factor * load, factor * v) <= counts[name] for name, load, v in pools)
        low, high = (factor, high) if holds else (low, factor)
    return counts, low


TYPES: Mapping[str, Chip] = {
    **{name.lower(): chip for name, chip in CHIPS.items()},
    "l40s": Chip(864e9, 362e12, 48e9, 1.86),
}
"""Sources: vendors' data sheets, dense half precision; the price of the L40S is a cloud list price (AWS g6e.xlarge)."""
SLOS = {"40ms": 0.04, "80ms": 0.08, "120ms": 0.12}
GPUS_PER_NODE = 8


def fleet(nodes: int) -> list[Manifest]:
    """Node manifests, the types in turn, eight GPUs each."""
    names = sorted(TYPES)
    return [_node(f"node-{number:05d}", names[number % len(names)]) for number in range(nodes)]


def _node(name: str, gpu_type: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": gpu_type}},
        "status": {"allocatable": {"cpu": "192", "memory": "2048Gi", "nvidia.com/gpu": str(GPUS_PER_NODE)}},
    }


def definitions() -> list[Manifest]:
    """GPU types, and the profiles of the one model that all services serve."""
    return [
        *(_gpu_type(name, chip) for name, chip in TYPES.items()),
        *(_profile(name, chip) for name, chip in TYPES.items()),
    ]


def _gpu_type(name: str, chip: Chip) -> Manifest:
    spec = {
        "nodeLabel": {"values": [name]},
        "memory": f"{chip.memory_bytes / 1e9:g}G",
        "pricePerHour": {"onDemand": chip.price_per_hour},
    }
    return {"apiVersion": OURS, "kind": "GPUType", "metadata": {"name": name}, "spec": spec}


def _profile(gpu_type: str, chip: Chip) -> Manifest:
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
    return {"apiVersion": OURS, "kind": "ModelProfile", "metadata": {"name": f"model-{gpu_type}"}, "spec": spec}


def services(count: int, gpus: int, seed: int, load: float = 0.4) -> list[Manifest]:
    """Services with random lengths, SLOs and rates. load: fraction of the fleet's dollars that they need, roughly.

    gpus: of the whole fleet. A service's rate makes it cost the same as the others within a factor of four, if it used
    only the type that is cheapest for its mean request.
    """
    chance = np.random.default_rng(seed)
    dollars = load * gpus * float(np.mean([chip.price_per_hour for chip in TYPES.values()]))
    weights = chance.uniform(0.5, 2.0, count)
    each = dollars * weights / weights.sum()
    return [_service(number, float(share), chance) for number, share in enumerate(each)]


def _service(number: int, dollars: float, chance: np.random.Generator) -> Manifest:
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
    return {"apiVersion": OURS, "kind": "ModelService", "metadata": metadata, "spec": spec}


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
