"""Costs of a recommendation: what the mix of a service costs now, at the recommended demand, and beside it.

A policy in mode Recommend changes no demand, so the plan's own mix says nothing about it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from autoscaler.decision.outcome import ScalingDecision
from cluster.autoscaling import Scaler
from cluster.demand import Demand
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService
from controller.deciders.decider import Turn
from placement.budget import Budget
from placement.mix.optimizer import work_of
from placement.mix.planner import plan_mix

AGAIN_S = 300.0
"""Seconds after which an unchanged recommendation is priced again: prices and stock may have changed."""
MOST_IN_A_PLAN = 2
"""Policies whose costs one plan computes, those first that have waited longest. Three mixes of a service take 0.2 s."""
WORK = work_of(0.5)
"""Solver work for one mix. Chosen: mixes of single services are proven with less (docs/benchmarks.md#mix)."""


def costs_of(
    snapshot: Snapshot, decided: Iterable[tuple[Scaler, ScalingDecision]], turn: Turn
) -> dict[str, dict[str, float]]:
    """Figures `mix_*`, dollars per hour, by policy, for those whose costs are due."""
    due = [(scaler, decision) for scaler, decision in decided if _is_due(scaler, decision, snapshot.at_s)]
    due.sort(key=lambda each: each[0].mix_costs_at_s)
    found: dict[str, dict[str, float]] = {}
    for scaler, decision in due[:MOST_IN_A_PLAN]:
        service = next((each for each in snapshot.services if each.name == scaler.target.name), None)
        if service is not None and scaler.demand is not None:
            found[scaler.name] = _costs(snapshot, service, scaler.demand, scaler.replica_load, decision.replicas, turn)
    return found


def _is_due(scaler: Scaler, decision: ScalingDecision, at_s: float) -> bool:
    if scaler.demand is None or scaler.mode != "Recommend":
        return False
    return scaler.mix_costs_for != decision.replicas or at_s - scaler.mix_costs_at_s >= AGAIN_S


def _costs(
    snapshot: Snapshot, service: ModelService, demand: Demand, unit: float, replicas: int, turn: Turn
) -> dict[str, float]:
    """Costs now, at these replicas' demand, and at that of one fewer and one more; without those that no mix serves."""
    now = sum(snapshot.price_per_hour(service, each) * count for each, count in (service.replicas or {}).items())
    asked = {"mix_recommended": replicas, "mix_one_fewer": replicas - 1, "mix_one_more": replicas + 1}
    costs: Mapping[str, float | None] = {
        name: _cost_at(snapshot, service, replace(demand, rate_per_s=count * unit), turn)
        for name, count in asked.items()
        if count >= 0
    }
    return {"mix_now": now, **{name: cost for name, cost in costs.items() if cost is not None}}


def _cost_at(snapshot: Snapshot, service: ModelService, demand: Demand, turn: Turn) -> float | None:
    """Cost of the service's own mix at this demand; None: no mix serves it."""
    if demand.rate_per_s == 0:
        return 0.0
    alone = replace(snapshot, services=(replace(service, demand=demand),))
    budget = Budget(WORK, turn.budget.clock, turn.budget.over_at_s)
    (planned,) = plan_mix(alone, budget, replace(turn.decisions.mix, explain=False)).services
    return None if planned.refusal else planned.cost_per_hour
