"""Many services on a stock that barely holds them, beside an exact model: `python -m benchmarks.mix_services --help`.

The stock of each instance is what one known solution uses, times `--slack`: at 1 all services can be served, but only
by giving up GPU types that each of them alone would take. Below 1 some must be refused; the exact model says which.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np

from benchmarks.arguments import seeds as numbers
from benchmarks.mix_exact import observed
from benchmarks.mix_instances import OURS, PRODUCT_LABEL, Manifest
from benchmarks.mix_oracle import Service, fleet_of, room_for, solve_exactly
from cli.inputs.planning import decider
from controller.settings import settings_from

PRICES = (0.7, 1.01, 2.2, 3.67, 7.5)
"""On-demand dollars per hour of the first five types; further ones repeat them a little dearer."""
INPUT_EDGES, OUTPUT_EDGES = (500, 2000, 8000), (100, 250, 500, 1000)


def tight_manifests(seed: int, services: int = 12, types: int = 5, *, slack: float = 1.0) -> list[Manifest]:
    """Services and an inventory per GPU type."""
    rng = np.random.default_rng([seed, services, types])
    prices = [PRICES[g % 5] * 1.1 ** (g // 5) for g in range(types)]
    made = [_gpu_type(f"t{g}", price) for g, price in enumerate(prices)]
    for k in range(services):
        service, profiles = _service(rng, k, prices)
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


def fleet_manifests(seed: int, services: int = 20, types: int = 5, nodes: int = 1000) -> list[Manifest]:
    """Services and nodes of eight devices with the types in equal numbers, most of which the services use."""
    rng = np.random.default_rng([seed, services, types, nodes])
    prices = [PRICES[g % 5] * 1.1 ** (g // 5) for g in range(types)]
    made = [_gpu_type(f"t{g}", price) for g, price in enumerate(prices)]
    for k in range(services):
        service, profiles = _service(rng, k, prices, instances=0.75 * 8 * nodes / services)
        made += [*profiles, service]
    return [*made, *(_node(v, types) for v in range(nodes))]


def _node(number: int, types: int) -> Manifest:
    has = {"cpu": "128", "memory": "1024Gi", "nvidia.com/gpu": "8"}
    labels = {PRODUCT_LABEL: f"T{number % types}"}
    about = {"metadata": {"name": f"n{number}", "labels": labels}, "spec": {}, "status": {"allocatable": has}}
    return {"apiVersion": "v1", "kind": "Node", **about}


def _gpu_type(name: str, price: float) -> Manifest:
    spec = {"nodeLabel": {"values": [name.upper()]}, "memory": "80Gi", "pricePerHour": {"onDemand": round(price, 3)}}
    return {"apiVersion": OURS, "kind": "GPUType", "metadata": {"name": name}, "spec": spec}


def _service(
    rng: np.random.Generator, k: int, prices: Sequence[float], instances: float = 7.0
) -> tuple[Manifest, list[Manifest]]:
    """A service that would keep about so many instances of a middling type busy, with a profile per type."""
    shape = (len(INPUT_EDGES), len(OUTPUT_EDGES))
    share = rng.random(shape) ** 2 + 0.01
    tables = [_table(rng, price, g) for g, price in enumerate(prices)]
    middling = tables[len(tables) // 2]
    rate = instances * float(rng.uniform(0.4, 1.6)) / float((share / share.sum() / middling).sum())
    profiles = [_profile(k, f"t{g}", table) for g, table in enumerate(tables)]
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


def _profile(k: int, gpu_type: str, table: np.ndarray[Any, np.dtype[np.float64]]) -> Manifest:
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """One plan."""

    seed: int
    cycle: int
    served: int
    services: int
    cost: float
    gap: float
    """As the plan states it."""
    seconds: float
    """Of the processor."""


def cycles(manifests: Sequence[Manifest], seed: int, deadline_s: float, count: int) -> Iterator[Outcome]:
    """Plans of a fleet that obeys each of them before the next."""
    settings = settings_from({"plan_deadline_s": deadline_s})
    decide = decider(settings, awaits_pods=True)
    snapshot = observed(manifests)
    for cycle in range(1, count + 1):
        began_s = time.process_time()
        plan = decide(snapshot)
        seconds = time.process_time() - began_s
        certificate = plan.certificates.get("mix")
        yield Outcome(
            seed=seed,
            cycle=cycle,
            served=sum(each.refusal is None for each in plan.services),
            services=len(plan.services),
            cost=sum(each.cost_per_hour for each in plan.services),
            gap=certificate.gap if certificate else 0.0,
            seconds=seconds,
        )
        snapshot = snapshot.after(plan.actions)


@click.command(help=__doc__)
@click.option("--seeds", callback=numbers, default="1-50", show_default=True)
@click.option("--services", default=12, show_default=True)
@click.option("--types", default=5, show_default=True, help="GPU types.")
@click.option("--slack", default=1.0, show_default=True, help="Stock, as a multiple of that of the known solution.")
@click.option("--nodes", default=0, show_default=True, help="Nodes of eight devices instead of such a stock.")
@click.option("--deadline", "deadline_s", default=2.0, show_default=True, help="Work of each plan, in nominal seconds.")
@click.option("--cycles", "count", default=1, show_default=True, help="Plans in a row, each of which is obeyed.")
@click.option("--exact", "limit_s", type=float, help="Also solve the exact model, with this limit for each solve, s.")
def main(
    seeds: tuple[int, ...],
    services: int,
    types: int,
    slack: float,
    nodes: int,
    deadline_s: float,
    count: int,
    limit_s: float | None,
) -> None:
    for seed in seeds:
        if nodes:
            manifests = fleet_manifests(seed, services, types, nodes)
        else:
            manifests = tight_manifests(seed, services, types, slack=slack)
        for outcome in cycles(manifests, seed, deadline_s, count):
            click.echo(json.dumps(asdict(outcome)))
        if limit_s is not None:
            exact = solve_exactly(fleet_of(manifests), limit_s=limit_s)
            line: dict[str, float] = {
                "seed": seed,
                "exact": exact.objective,
                "bound": exact.bound,
                "served": len(exact.served),
            }
            without = {name: None if math.isinf(n) else n for name, n in line.items()}
            click.echo(json.dumps(without | {"proven": exact.is_proven}))


if __name__ == "__main__":
    main()
