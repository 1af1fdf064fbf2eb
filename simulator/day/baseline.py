"""Baseline of a simulated day: each service on one GPU type that follows its demand, and pods placed by best fit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from cluster.snapshot import Snapshot
from cluster.workloads import ModelService
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from placement.budget import Budget
from placement.mix.optimizer import work_of
from placement.mix.planner import MixSettings, plan_mix
from simulator.day.simulation import DayMoment, DaySettings, live

POLICY = "bestfit"
WITHIN_S = 2.0
"""Size of each search for a type, as the deadline of a plan. One type leaves little to search for."""


@dataclass(frozen=True, slots=True, eq=False)
class OneTypeFleet:
    """Fleet whose services use one GPU type each."""

    fleet: Snapshot
    types: Mapping[str, str]
    """GPU type of each service that a single type can serve."""


def one_type_each(fleet: Snapshot) -> OneTypeFleet:
    """Each service on the one GPU type that serves its peak at the least cost on this fleet, by descending priority.

    A service that no single type can serve keeps the types that it may use.
    """
    chosen: dict[str, ModelService] = {}
    types: dict[str, str] = {}
    for service in sorted(fleet.services, key=lambda each: -each.priority):
        profiled = {each.gpu_type for each in fleet.profiles if each.model == service.model}
        costs = []
        for gpu_type in sorted(profiled & set(service.gpu_types or fleet.gpu_type_names) & set(fleet.gpu_type_names)):
            services = (*chosen.values(), replace(service, gpu_types=(gpu_type,)))
            settings = MixSettings(explain=False)
            plan = plan_mix(replace(fleet, services=services), Budget(work_of(WITHIN_S)), settings).services[-1]
            if plan.refusal is None:
                costs.append((plan.cost_per_hour, gpu_type))
        if costs:
            types[service.name] = min(costs)[1]
        only = (types[service.name],) if costs else service.gpu_types
        chosen[service.name] = replace(service, gpu_types=only)
    return OneTypeFleet(replace(fleet, services=tuple(chosen[each.name] for each in fleet.services)), types)


def baseline_day(
    fleet: Snapshot, settings: DaySettings, decisions: Decisions, clock: Callable[[], float], lost: str
) -> tuple[OneTypeFleet, Iterator[DayMoment]]:
    """The same day on one type for each service, and pods by best fit.

    decisions: those of the day itself, of which only the policy of placement is another. lost: node that failed in it.
    """
    one_type = one_type_each(fleet)
    brain = InlineBrain(replace(decisions, policy=POLICY), clock)
    same = replace(settings, lose=lost, lose_hour=settings.lose_hour if lost else None)
    return one_type, live(one_type.fleet, brain, same, clock)
