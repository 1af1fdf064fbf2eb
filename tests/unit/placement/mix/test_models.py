"""Several models behind one service: which of them answers what, beside an exact model of the same choice."""

import copy
import math
import random
from typing import Any

import numpy as np
import pulp
import pytest

from cluster.actions import Scale
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.settings import settings_from
from tests.mix_exact.comparison import observed, planned
from tests.mix_exact.phases import own

GRID = {"inputTokens": [1000, 4000], "outputTokens": [100]}


def fleet(
    rates: dict[tuple[str, str], list[float]], prices: dict[str, float], *, requests: float = 10.0, **spec: Any
) -> list[dict[str, Any]]:
    """rates: requests per second of short and of long prompts by (model, GPU type), of one instance alone."""
    made = [
        own("GPUType", name, nodeLabel={"values": [name]}, memory="80Gi", pricePerHour={"onDemand": price})
        for name, price in prices.items()
    ]
    for (model, gpu_type), (short, long) in rates.items():
        table = {"slo": {"tpot": "60ms"}, "requestsPerSecond": [[short], [long]]}
        made.append(
            own("ModelProfile", f"{model}-{gpu_type}", model=model, gpuType=gpu_type, grid=GRID, throughput=[table])
        )
    demand = {"requestsPerSecond": requests, **GRID, "histogram": [[0.75], [0.25]]}
    models = {"model": "small", "models": ["large"], **spec}
    service = own("ModelService", "s", slo={"tpot": "60ms"}, demand=demand, headroom=0.0, split="continuous", **models)
    return [*made, service]


RATES = {("small", "l4"): [4.0, 1.0], ("large", "h100"): [4.0, 2.0]}
PRICES = {"l4": 1.0, "h100": 8.0}
QUALITY = {"small": 0.6, "large": 0.9}


def plan_of(manifests: list[dict[str, Any]]) -> Plan:
    return planned(manifests, settings_from({}))[1]


def mix(plan: Plan) -> dict[str, int]:
    (service,) = plan.services
    assert service.refusal is None, service.refusal
    return {kind.name: count for kind, count in service.instances.items()}


def mean_quality(plan: Plan, quality: dict[str, float]) -> list[float]:
    """Mean quality of the requests of each length, by the routing."""
    routing = plan.services[0].routing
    assert routing is not None
    of_type = np.array([quality[kind.phase] for kind in routing.instance_types])
    return [float(x) for x in (routing.weight @ of_type)[:, 0]]


def exact(manifests: list[dict[str, Any]]) -> float:
    """Least cost by a model written apart: quality as one inequality for each length, in the qualities themselves.

    Sets        b: lengths; o: (model, GPU type)
    Variables   x_bo ≥ 0: fraction of b that o answers; y_o ∈ ℕ: instances
    Objective   min Σ_o price_o·y_o
    Constraints Σ_o x_bo = 1; Σ_b rate_b·x_bo / T_bo ≤ y_o; Σ_o q_o·x_bo ≥ mean
    """
    service = manifests[-1]["spec"]
    prices = {e["metadata"]["name"]: e["spec"]["pricePerHour"]["onDemand"] for e in manifests if e["kind"] == "GPUType"}
    profiles = [each["spec"] for each in manifests if each["kind"] == "ModelProfile"]
    quality = service.get("quality", {"of": {}, "mean": 0.0})
    problem, held = pulp.LpProblem("models", pulp.LpMinimize), [list[Any]() for _ in profiles]
    count = [problem.add_variable(f"y{o}", 0, cat="Integer") for o in range(len(profiles))]
    problem.setObjective(pulp.lpSum(prices[each["gpuType"]] * y for each, y in zip(profiles, count, strict=True)))
    for b, (share,) in enumerate(service["demand"]["histogram"]):
        answers = []
        for o, each in enumerate(profiles):
            (sustained,) = each["throughput"][0]["requestsPerSecond"][b]
            if sustained:
                x = problem.add_variable(f"x{b}_{o}", 0)
                held[o].append(share * service["demand"]["requestsPerSecond"] / sustained * x)
                answers.append((quality["of"].get(each["model"], 1.0), x))
        problem += pulp.lpSum(x for _, x in answers) == 1
        problem += pulp.lpSum(q * x for q, x in answers) >= quality["mean"]
    for y, loads in zip(count, held, strict=True):
        problem += pulp.lpSum(loads) <= y
    problem.solve(pulp.HiGHS(msg=False, gapRel=1e-9, threads=1))
    return float(pulp.value(problem.objective)) if problem.sol_status == pulp.LpSolutionOptimal else math.inf


def test_equally_good_models_share_whatever_is_cheapest() -> None:
    plan = plan_of(fleet(RATES, PRICES))

    assert mix(plan) == {"small/l4": 5}  # 7.5 / 4 + 2.5 / 1 = 4.4 instances of 1 $/h


def test_a_mean_quality_is_met_for_requests_of_each_length_at_the_least_cost() -> None:
    """0.75 is half of each: half of the load keeps 1.6 h100 busy, the other 2.2 l4; the rest fits 2 h100."""
    plan = plan_of(fleet(RATES, PRICES, quality={"of": QUALITY, "mean": 0.75}))

    assert mix(plan) == {"small/l4": 2, "large/h100": 2}
    assert min(mean_quality(plan, QUALITY)) >= 0.75 - 1e-6
    assert plan.services[0].routing is not None
    assert plan.services[0].routing.weight.sum(axis=2) == pytest.approx(1.0)


def test_a_mean_that_the_worst_model_meets_binds_nothing() -> None:
    plan = plan_of(fleet(RATES, PRICES, quality={"of": QUALITY, "mean": 0.6}))

    assert mix(plan) == {"small/l4": 5}


def test_a_mean_that_only_the_best_model_meets_has_it_answer_all() -> None:
    assert mix(plan_of(fleet(RATES, PRICES, quality={"of": QUALITY, "mean": 0.9}))) == {"large/h100": 4}


def test_models_together_serve_what_none_of_them_could_alone() -> None:
    """Neither model serves both lengths."""
    plan = plan_of(fleet({("small", "l4"): [4.0, 0.0], ("large", "h100"): [0.0, 2.0]}, PRICES))

    assert mix(plan) == {"small/l4": 2, "large/h100": 2}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"quality": {"of": QUALITY, "mean": 0.95}}, "above that of every model"),
        ({"quality": {"of": {"small": 0.6}, "mean": 0.5}}, "says nothing of large"),
        ({"models": ["large", "LARGE"]}, "called large in names"),
        ({"phases": {"prefill": {}, "decode": {}}}, "has phases, too"),
    ],
)
def test_what_cannot_be_meant_is_a_mistake(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words):
        observed(fleet(RATES, PRICES, **spec))


def running(status: dict[str, int], **spec: Any) -> tuple[Snapshot, Plan]:
    manifests = fleet(RATES, PRICES, **spec)
    manifests[-1]["status"] = {"mix": status}
    return planned(manifests, settings_from({}))


def scaled(plan: Plan) -> dict[str, int]:
    steps = [step.action for step in plan.steps() if isinstance(step.action, Scale)]
    return {kind.name: count for each in steps for kind, count in each.instances.items()}


def test_a_models_instances_are_known_again_and_stopped_where_it_answers_no_more() -> None:
    snapshot, plan = running({"small/l4": 2, "large/h100": 2}, quality={"of": QUALITY, "mean": 0.75})

    assert {kind.name: n for kind, n in (snapshot.services[0].replicas or {}).items()} == {
        "large/h100": 2,
        "small/l4": 2,
    }
    assert scaled(plan) == {}
    assert scaled(running({"small/l4": 5, "large/h100": 2})[1]) == {"large/h100": 0}
    # Instances from before there were several models are of none of them.
    assert scaled(running({"l4": 5})[1]) == {"l4": 0, "small/l4": 5}


@pytest.mark.parametrize("seed", range(60))
def test_a_mix_of_models_costs_what_an_exact_model_says(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - reproducible fleets
    types = {f"t{n}": round(chance.uniform(0.5, 9), 2) for n in range(chance.randint(1, 3))}
    pairs = [(model, kind) for model in ("small", "large") for kind in types if chance.random() < 0.8]
    rates = {pair: [round(chance.uniform(0.3, 6), 2) if chance.random() < 0.9 else 0.0 for _ in GRID["inputTokens"]]
             for pair in pairs}  # fmt: skip
    rates = {pair: both for pair, both in rates.items() if any(both)}
    quality = {"small": round(chance.uniform(0.2, 0.6), 2), "large": round(chance.uniform(0.6, 1.0), 2)}
    spec: dict[str, Any] = {}
    if chance.random() < 0.8:
        spec["quality"] = {"of": quality, "mean": round(chance.uniform(quality["small"], quality["large"]), 2)}
    if not rates:
        return
    manifests = fleet(rates, types, requests=round(chance.uniform(0.5, 40), 1), **spec)
    optimum = exact(copy.deepcopy(manifests))
    plan = plan_of(manifests)
    (service,) = plan.services

    assert (service.refusal is None) == np.isfinite(optimum), service.refusal
    if service.refusal is None:
        assert service.certificate is not None
        assert service.certificate.bound <= optimum + 1e-6
        assert service.cost_per_hour <= optimum * (1 + service.certificate.gap) + 1e-6
        assert service.certificate.gap <= 0.001
        if spec:
            assert min(mean_quality(plan, quality)) >= spec["quality"]["mean"] - 1e-6
