"""Baseline of a simulated day: every service at its peak on one GPU type, and pods placed by best fit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.plans import ServicePlan
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from placement.budget import Budget
from placement.mix.optimizer import work_of
from placement.mix.planner import MixSettings, plan_mix
from simulator.day.simulation import DaySettings, Moment, live

POLICY = "bestfit"
WITHIN_S = 2.0
"""Size of each search for a type, as the deadline of a plan. One type leaves little to search for."""


@dataclass(frozen=True, slots=True, eq=False)
class StaticPeak:
    """Fleet whose services use one GPU type each."""

    fleet: Snapshot
    types: Mapping[str, str]
    """GPU type of each service that a single type can serve."""


def static_peak(fleet: Snapshot) -> StaticPeak:
    """Each service on the one GPU type that serves its peak at the least cost on this fleet, by descending priority.

    A service that no single type can serve keeps the types that it may use.
    """
    chosen: dict[str, ModelService] = {}
    types: dict[str, str] = {}
    for service in sorted(fleet.services, key=lambda each: -each.priority):
        plans = [
            (plan.cost_per_hour, gpu_type)
            for gpu_type in sorted(_profiled(fleet, service))
            if (plan := _on_one_type(fleet, tuple(chosen.values()), service, gpu_type)).refusal is None
        ]
        if plans:
            types[service.name] = min(plans)[1]
        only = (types[service.name],) if plans else service.gpu_types
        chosen[service.name] = replace(service, gpu_types=only)
    return StaticPeak(replace(fleet, services=tuple(chosen[each.name] for each in fleet.services)), types)


def _profiled(fleet: Snapshot, service: ModelService) -> set[str]:
    profiled = {each.gpu_type for each in fleet.profiles if each.model == service.model}
    return profiled & set(service.gpu_types or fleet.gpu_type_names) & set(fleet.gpu_type_names)


def _on_one_type(fleet: Snapshot, before: Sequence[ModelService], service: ModelService, gpu_type: str) -> ServicePlan:
    services = (*before, replace(service, gpu_types=(gpu_type,)))
    plan = plan_mix(replace(fleet, services=services), Budget(work_of(WITHIN_S)), MixSettings(explain=False))
    return plan.services[-1]


def static_day(
    fleet: Snapshot, settings: DaySettings, clock: Callable[[], float], lost: str
) -> tuple[StaticPeak, Iterator[Moment]]:
    """The same day with static services and pods by best fit. lost: node that failed in the day to compare with."""
    static = static_peak(fleet)
    brain = InlineBrain(Decisions(policy=POLICY), clock)
    same = replace(settings, steady=True, lose=lost, lose_hour=settings.lose_hour if lost else None)
    return static, live(static.fleet, brain, same, clock)
