"""Exact model of one service whose prefill and decode may be apart, and which may have a cache, written from the
manifests' documentation alone.

Sets        k in 0..K: instances of the cache; modes: one pool of whole requests for each (GPU type, width), or one of
            prefill and one of decode; nodes v
Data        load[c,o], variance[c,o] of the cells c of demand on each pool's offer o, F slices per cell
Variables   x[c,o] in 0..F: slices; n[o,v]: instances on node v; t[o,l] in {0,1}: the line of the burst curve that holds
Objective   dollars per hour, the cache's among them; the cheapest of all modes and k
Constraints every phase of every slice is on one offer; each pool holds its load and headroom; nodes hold their devices
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pulp

from tests.mix_exact.oracle import CONTACTS, Z_TIMES_ROOT_IDLE

Manifest = dict[str, Any]
SLICES = 2
PRICES = {"small": 1.0, "middle": 2.2, "large": 4.1}


@dataclass(frozen=True, slots=True)
class Offer:
    gpu_type: str
    width: int
    price: float
    loads: tuple[float, ...]
    variances: tuple[float, ...]


def own(kind: str, name: str, **spec: Any) -> Manifest:
    return {"apiVersion": "tonnage.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def random_service(seed: int, *, cached: bool = False) -> list[Manifest]:
    """Types with networks of unlike speed, profiles of two widths with their phases, nodes, and one service."""
    rng = np.random.default_rng(seed)
    made: list[Manifest] = []
    inputs, outputs = [int(x) for x in np.sort(rng.choice([128, 512, 1500, 4000], 2, replace=False))], [64, 256]
    for name, price in PRICES.items():
        network = {} if rng.random() < 0.1 else {"network": int(rng.choice([2, 6, 25])) * 10**9}
        made.append(own("GPUType", name, nodeLabel={"values": [name]}, memory="80Gi", pricePerHour={"onDemand": price},
                        **network))  # fmt: skip
        for n in range(int(rng.integers(1, 4))):
            room = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": str(rng.choice([2, 4, 8]))}
            labels = {"kubernetes.io/hostname": f"{name}-{n}", "nvidia.com/gpu.product": name}
            made.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{name}-{n}", "labels": labels},
                         "status": {"allocatable": room}})  # fmt: skip
        widths = [width for width in (1, 2) if rng.random() < 0.8]
        made += [_profile(rng, name, price, width, inputs, outputs) for width in widths]
    share = rng.dirichlet(np.ones(4)).reshape(2, 2).round(3)
    share[0, 0] += 1 - share.sum()
    slo: Manifest = {"tpot": "60ms"}
    if rng.random() < 0.8:
        slo["ttft"] = f"{int(rng.choice([300, 1000, 3000]))}ms"
    if rng.random() < 0.3:
        slo["share"] = 0.9
    rate = round(float(rng.uniform(0.5, 10)), 2)
    demand = {"requestsPerSecond": rate, "inputTokens": inputs, "outputTokens": outputs, "histogram": share.tolist()}
    phases: Manifest = {"prefill": {}, "decode": {}}
    if rng.random() < 0.3:
        phases["decode"] = {"gpuTypes": [str(rng.choice(list(PRICES)))]}
    made.append(own("ModelService", "s", model="m", slo=slo, demand=demand, phases=phases, sliceFactor=SLICES))
    if cached:
        each, spec = int(rng.choice([16, 64, 200])), made[-1]["spec"]
        spec["cache"] = {"memory": f"{each * int(rng.integers(1, 17))}Gi", "instanceMemory": f"{each}Gi"}
        if rng.random() < 0.5:
            spec["cache"]["pricePerGiBHour"] = float(rng.choice([0.0005, 0.01]))
        if rng.random() < 0.5:
            spec["cache"]["hits"] = [{"within": "30s", "share": 0.2}, {"within": "5m", "share": 0.7}]
        if rng.random() < 0.5:
            spec["instance"] = {"memory": f"{int(rng.choice([16, 48, 100]))}Gi"}
        if rng.random() < 0.4:
            del spec["phases"]
    return made


def _profile(
    rng: np.random.Generator, name: str, price: float, width: int, inputs: list[int], outputs: list[int]
) -> Manifest:
    speed = price * width * rng.uniform(0.6, 1.5)
    prefill = [x / (4000 * speed * rng.uniform(0.8, 1.25)) for x in inputs]
    decoded = [[speed * 25 * 64 / y / (1 + x / 3000) * rng.uniform(0.8, 1.2) for y in outputs] for x in inputs]
    whole = [[1 / (1 / d + p * rng.uniform(1, 6)) for d in row] for row, p in zip(decoded, prefill, strict=True)]
    table = {"slo": {"tpot": "60ms"}, "requestsPerSecond": np.round(whole, 4).tolist(),
             "decodedPerSecond": np.round(decoded, 4).tolist()}  # fmt: skip
    return own("ModelProfile", f"m-{name}x{width}", model="m", gpuType=name, gpusPerInstance=width,
               grid={"inputTokens": inputs, "outputTokens": outputs}, throughput=[table],
               prefill=[f"{p * 1000:.3f}ms" for p in prefill],
               cacheBytesPerToken=int(rng.choice([50_000, 300_000])))  # fmt: skip


def _seconds(text: str) -> float:
    return float(text.removesuffix("ms")) / 1000


def most_of_cache(manifests: Sequence[Manifest]) -> int:
    """Instances of the cache that the nodes have room for beside those that all their devices could have, and that it
    may have."""
    (spec,) = (each["spec"] for each in manifests if each["kind"] == "ModelService")
    profiles = [each["spec"] for each in manifests if each["kind"] == "ModelProfile"]
    networks = {
        each["metadata"]["name"]: each["spec"].get("network") for each in manifests if each["kind"] == "GPUType"
    }
    each_gib, own_gib = _gib(spec["cache"]["instanceMemory"]), _gib(spec.get("instance", {}).get("memory", "0Gi"))
    room = 0
    for node in (each for each in manifests if each["kind"] == "Node"):
        gpu_type, has = node["metadata"]["labels"]["nvidia.com/gpu.product"], node["status"]["allocatable"]
        widths = [p["gpusPerInstance"] for p in profiles if p["gpuType"] == gpu_type]
        if widths and networks[gpu_type]:
            room += max(0, int(_gib(has["memory"]) - int(has["nvidia.com/gpu"]) * own_gib / min(widths))) // each_gib
    return min(room, _gib(spec["cache"]["memory"]) // each_gib)


def _gib(text: str) -> int:
    return int(text.removesuffix("Gi"))


def found_share(manifests: Sequence[Manifest], instances: int) -> float:
    """Fraction of the prompts' tokens that so many instances of the cache find."""
    (spec,) = (each["spec"] for each in manifests if each["kind"] == "ModelService")
    profiles = [each["spec"] for each in manifests if each["kind"] == "ModelProfile"]
    published = [(10, 0.3), (103, 0.4), (309, 0.48), (514, 0.5)]
    asked = [({"30s": 30, "5m": 300}[each["within"]], each["share"]) for each in spec["cache"].get("hits", [])]
    demand = spec["demand"]
    tokens = sum(sum(row) * edge for row, edge in zip(demand["histogram"], demand["inputTokens"], strict=True))
    allowed = spec.get("gpuTypes") or list(PRICES)
    each_bytes = max(p["cacheBytesPerToken"] for p in profiles if p["gpuType"] in allowed)
    bytes_per_s = tokens * demand["requestsPerSecond"] * each_bytes
    held_s = instances * _gib(spec["cache"]["instanceMemory"]) * 2**30 / bytes_per_s
    before_s, before = 0.0, 0.0
    for at_s, share in asked or published:
        if held_s < at_s:
            return before + (share - before) * (held_s - before_s) / (at_s - before_s)
        before_s, before = at_s, share
    return before


def modes_of(manifests: Sequence[Manifest], found: float = 0.0) -> dict[str, list[list[Offer]]]:
    """Pools of each mode, each with its offers; load infinite where an offer cannot serve a cell. found: fraction of
    the prompts that a cache finds."""
    kinds: dict[str, list[Manifest]] = {}
    for each in manifests:
        kinds.setdefault(each["kind"], []).append(each)
    spec = kinds["ModelService"][0]["spec"]
    networks = {each["metadata"]["name"]: each["spec"].get("network") for each in kinds["GPUType"]}
    demand, slo = spec["demand"], spec["slo"]
    cells = [(i, j, demand["histogram"][i][j] * demand["requestsPerSecond"]) for i in range(2) for j in range(2)]
    cells = [cell for cell in cells if cell[2] > 0]
    ttft = _seconds(slo["ttft"]) if "ttft" in slo else math.inf
    # One in ten of the requests that may be late is planned to; the curve's own height is that of 99.95 %.
    late = NormalDist().inv_cdf(1 - (1 - slo["share"]) / 10) / 3.290 if "share" in slo else 1.0
    profiles = [each["spec"] for each in kinds.get("ModelProfile", [])]
    linked = [p for p in profiles if networks[p["gpuType"]]]
    slowest = min((networks[p["gpuType"]] * p["gpusPerInstance"] for p in linked), default=math.inf)

    def offer(p: Manifest, what: str) -> Offer:
        table, tpot = p["throughput"][0], 0.06
        loads, variances = [], []
        for i, j, rate in cells:
            outputs, first = demand["outputTokens"][j], _seconds(p["prefill"][i])
            cache = demand["inputTokens"][i] * p["cacheBytesPerToken"]
            link = (networks[p["gpuType"]] or math.inf) * p["gpusPerInstance"]
            load = variance = math.inf
            if what == "decode":
                each = table["decodedPerSecond"][i][j]
                held, kept = (
                    max(1.0, each * outputs * tpot),
                    1 - 2 * (cache / link + cache / slowest) / (outputs * tpot),
                )
                if kept > 0 and each > 0:
                    load = rate / min(each * kept, link / cache)
                    variance = load / max(1.0, held * kept)
            elif first <= ttft:
                waiting = rate * first * first / ttft
                if what == "prefill":
                    load, variance = rate * max(first * (1 - found), cache / link), waiting
                elif (each := table["requestsPerSecond"][i][j]) > 0:
                    if found and networks[p["gpuType"]]:
                        # The time of what is found is that with prefill less that without. Its cache has to come: of
                        # that, no more is fetched than comes while the rest is computed.
                        saved_s = max(0.0, 1 / each - 1 / table["decodedPerSecond"][i][j])
                        each = 1 / (1 / each - min(found, 1 / each / (saved_s + cache / link)) * saved_s)
                    load = rate / each
                    variance = load / max(1.0, each * outputs * tpot)
                    if "ttft" in slo:
                        variance = max(variance, waiting)
            loads.append(load)
            variances.append(0.0 if math.isinf(load) else variance * late**2)
        price = PRICES[p["gpuType"]] * p["gpusPerInstance"]
        return Offer(p["gpuType"], p["gpusPerInstance"], price, tuple(loads), tuple(variances))

    def allowed(phase: str) -> list[Manifest]:
        if "phases" not in spec:
            return []
        types = spec["phases"][phase].get("gpuTypes") or list(PRICES)
        return [p for p in linked if p["gpuType"] in types]

    return {
        "together": [[offer(p, "whole") for p in profiles]],
        "apart": [[offer(p, phase) for p in allowed(phase)] for phase in ("prefill", "decode")],
    }


def cheapest(pools: Sequence[Sequence[Offer]], nodes: Mapping[str, tuple[str, int]]) -> float:
    """Dollars per hour of the optimum; inf where there is none. nodes: GPU type and devices by name."""
    problem = pulp.LpProblem("exact", pulp.LpMinimize)
    used: dict[str, list[Any]] = {name: [] for name in nodes}
    dollars = []
    for k, offers in enumerate(pools):
        cells = len(offers[0].loads) if offers else 0
        if not offers:
            return math.inf
        x = {}
        for o, offer in enumerate(offers):
            able = [c for c in range(cells) if math.isfinite(offer.loads[c])]
            for c in able:
                x[c, o] = problem.add_variable(f"x_{k}_{o}_{c}", 0, SLICES, pulp.LpInteger)
            seats = []
            for v, (gpu_type, _) in nodes.items():
                if gpu_type == offer.gpu_type:
                    n = problem.add_variable(f"n_{k}_{o}_{v}".replace("-", "_"), 0, cat=pulp.LpInteger)
                    used[v].append(offer.width * n)
                    seats.append(n)
            dollars += [offer.price * n for n in seats]
            load = pulp.lpSum(offer.loads[c] / SLICES * x[c, o] for c in able)
            variance = pulp.lpSum(offer.variances[c] / SLICES * x[c, o] for c in able)
            most = sum(offer.variances[c] for c in able)
            lines = [problem.add_variable(f"t_{k}_{o}_{n}", 0, 1, pulp.LpInteger) for n in range(len(CONTACTS))]
            filled = problem.add_variable(f"f_{k}_{o}", 0, 1, pulp.LpInteger)
            room = problem.add_variable(f"r_{k}_{o}", 0)
            for c in able:
                if offer.variances[c] > 0:
                    problem += x[c, o] <= SLICES * filled
            problem += pulp.lpSum(lines) == filled
            for contact, line in zip(CONTACTS, lines, strict=True):
                high = Z_TIMES_ROOT_IDLE * (most / (2 * contact) + contact / 2)
                problem += room >= Z_TIMES_ROOT_IDLE * (variance / (2 * contact) + contact / 2) - high * (1 - line)
            problem += load + room <= pulp.lpSum(seats)
        for c in range(cells):
            terms = [x[c, o] for o in range(len(offers)) if (c, o) in x]
            if not terms:
                return math.inf
            problem += pulp.lpSum(terms) == SLICES
    for name, (_, devices) in nodes.items():
        problem += pulp.lpSum(used[name]) <= devices
    problem += pulp.lpSum(dollars)
    problem.solve(pulp.HiGHS(msg=False, gapRel=1e-5, threads=1, mip_feasibility_tolerance=1e-9))
    return float(pulp.value(problem.objective)) if problem.sol_status == pulp.LpSolutionOptimal else math.inf


def solved_exactly(manifests: Sequence[Manifest], cached: int = 0) -> dict[str, float]:
    """Cost of the optimum of each mode. cached: instances of the cache."""
    nodes = {
        each["metadata"]["name"]: (each["metadata"]["labels"]["nvidia.com/gpu.product"],
                                   int(each["status"]["allocatable"]["nvidia.com/gpu"]))
        for each in manifests if each["kind"] == "Node"
    }  # fmt: skip
    (spec,) = (each["spec"] for each in manifests if each["kind"] == "ModelService")
    found, paid = 0.0, 0.0
    if cached:
        found = found_share(manifests, cached)
        cache = spec["cache"]
        paid = cached * cache.get("pricePerGiBHour", 0.004) * _gib(cache["instanceMemory"])
    return {mode: cheapest(pools, nodes) + paid for mode, pools in modes_of(manifests, found).items()}
