"""A day's wave on the example fleet: loading minutes and bill of the operator, and the least that foresight could have.

A service-minute is one of loading while any instance of a service loads after its start. The bound knows the whole day,
holds at each cycle any price between the proven bounds of the cheapest mixes, stops for nothing, and shares no stock:
no decider has fewer loading minutes at the same bill.

    python -m tests.rigs.scaling.wave
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cli.inputs.planning import read
from cluster import actions, workloads
from cluster.arrays import FloatArray
from cluster.snapshot import Snapshot
from controller import cycle, guard
from controller.brain.inline import InlineBrain, decisions_from
from controller.settings import OperatorSettings
from placement.budget import Budget
from placement.mix import corrections
from placement.mix.optimizer import work_of
from placement.mix.planner import MixSettings, plan_mix
from simulator.day.simulation import services_per_hour, tide
from simulator.world import SimulatedWorld

STEP_S = 600.0
CYCLES = 144
_FEES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
"""Dollars that an event of loading is charged in the search of the frontier."""


@dataclass(frozen=True, slots=True)
class Day:
    """Loading minutes of all services, and dollars."""

    loading_min: float
    dollars: float


def fleet() -> Snapshot:
    return replace(read(["examples/"], sys.stdin).snapshot, at_s=0.0, observed_at_s={})


def shares() -> FloatArray:
    """Demand at each cycle, as a fraction of the peak."""
    return np.array([tide(STEP_S * k / 3600.0) for k in range(CYCLES)])


def operated(seen: Snapshot) -> Day:
    """The operator's own cycles through the day."""
    settings = decisions_from(OperatorSettings(), awaits_pods=False)
    brain = InlineBrain(replace(settings, mix=replace(settings.mix, explain=False)), clock=cycle.stopped)
    world, events, dollars = SimulatedWorld(seen), 0, 0.0
    peak = {each.name: each.demand.rate_per_s for each in seen.services if each.demand}
    for number, share in enumerate(shares().tolist()):
        world.demand({name: rate * share for name, rate in peak.items()})
        world.pass_time(STEP_S * number - world.observe().at_s)
        before = {each.name: each.replicas or {} for each in world.observe().services}
        for step in cycle.run_cycle(world, brain, guard.Limits(), 60.0, cycle.stopped).outcome.done:
            if isinstance(step.action, actions.Scale):
                had = before[step.action.service]
                events += any(count > had.get(each, 0) for each, count in step.action.instances.items())
        dollars += services_per_hour(world.observe()) * STEP_S / 3600.0
    return Day(events * workloads.LOAD_S / 60.0, dollars)


def bound(seen: Snapshot) -> Iterator[Day]:
    """Least dollars of the day for fewer and fewer loading minutes, by perfect foresight."""
    prices = [_prices(seen, each) for each in seen.services if each.demand]
    for fee in _FEES:
        found = [_least(price, fee) for price in prices]
        events, dollars = (sum(each[n] for each in found) for n in (0, 1))
        yield Day(events * workloads.LOAD_S / 60.0, dollars)


def _prices(seen: Snapshot, service: workloads.ModelService) -> FloatArray:
    """Lower bound on the price of a mix of this service alone at each cycle, dollars; shape (cycles,)."""
    known: dict[float, float] = {}
    found = []
    for share in shares().round(9).tolist():
        if share not in known:
            assert service.demand is not None
            demand = replace(service.demand, rate_per_s=service.demand.rate_per_s * share)
            alone = replace(seen, services=(replace(service, demand=demand, replicas=None),))
            (plan,) = plan_mix(alone, Budget(work_of(2.0)), MixSettings(explain=False)).services
            known[share] = plan.certificate.bound if plan.certificate else 0.0
        found.append(known[share])
    return np.array(found) * STEP_S / 3600.0


def _least(price: FloatArray, fee: float) -> tuple[int, float]:
    """Events and dollars of the staircase above the prices that is cheapest with this fee on each step up."""
    levels = np.unique(price)
    up = fee * (levels[None, :] > levels[:, None])
    cost = np.where(levels >= price[0] - 1e-12, levels, np.inf)
    came = []
    for now in price[1:].tolist():
        all_costs = cost[:, None] + up
        came.append(all_costs.argmin(0))
        cost = all_costs.min(0) + np.where(levels >= now - 1e-12, levels, np.inf)
    at = int(cost.argmin())
    course = [at]
    for before in reversed(came):
        course.append(int(before[course[-1]]))
    held = levels[course[::-1]]
    return int((np.diff(held) > 1e-12).sum()), float(held.sum())


if __name__ == "__main__":
    example = fleet()
    now = operated(example)
    kept, corrections.standing = corrections.standing, lambda _seen, plan, *_: plan
    before = operated(example)
    corrections.standing = kept
    days = [("without standing mixes", before), ("operator", now), *(("foresight", each) for each in bound(example))]
    for name, each in days:
        ratio, more = each.loading_min / before.loading_min, each.dollars / before.dollars - 1
        loading = f"{each.loading_min:.0f} loading minutes ({ratio:.2f})"
        sys.stdout.write(f"{name}: {loading}, ${each.dollars:.2f} ({more:+.2%})\n")
