"""Records the bundles of this folder: seeded days of the simulator, and what was decided in each of their cycles.

    python -m tests.replay.record

A change that is meant to decide otherwise records them again; the diff of the .plans.txt files is its review.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cli.printing.bundle_output import action_words
from cli.printing.plan_figures import instances, money, named
from cli.verbs.bundle import brain_with
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.cycle import Cycle, run_cycle, stopped
from controller.guard import Limits
from controller.objects.manifests import read_manifests
from controller.ports import Brain
from controller.recording.bundle import about, files_of, settings_from, shown, write_tar_gz
from controller.settings import OperatorSettings
from controller.snapshot.from_manifests import snapshot_from
from simulator.day.simulation import DaySettings, live
from simulator.world import SimulatedWorld
from tests.builders.random_clusters import random_cluster
from tests.builders.recordings import recording_of

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
MADE_AT_S = 1_767_225_600.0
"""2026-01-01; of all bundles, so that recording again gives the same bytes."""
DEADLINE_S = 600.0
"""Of a plan. The clock of recording and replay stands still: no plan is cut short."""


def plan_lines(plan: Plan) -> Iterator[str]:
    """One line per action, service and unplaced workload, with the codes of the reasons."""
    yield from (f"{action_words(step)}: {step.reason.code}" for step in plan.steps())
    for service in plan.services:
        mix = instances(named(service.instances))
        what = service.refusal.code if service.refusal else f"{mix}, ${money(service.cost_per_hour)} per hour"
        yield f"service {service.service}: {what}"
    yield from (f"unplaced {each.workload}: {each.reason.code}" for each in plan.unplaced)
    yield from (f"refused {action_words(each.step)}: {each.reason.code}" for each in plan.refused)


@dataclass
class ObservedBrain:
    """A brain, and the plans that it made."""

    brain: Brain
    plans: list[tuple[Snapshot, Plan]] = field(default_factory=list)

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        made = self.brain.plan(snapshot, deadline_s)
        self.plans.append((snapshot, made))
        return made


def settings_with(**given: Any) -> OperatorSettings:
    """The operator's defaults with some of them changed, whatever this process's environment is."""
    settings, _ = settings_from({"identity": "recorded", "plan_deadline_s": 60.0, **given})
    return settings


def day_of_examples(settings: OperatorSettings) -> Iterator[Cycle]:
    """The fleet of examples/ through a day of tides, jobs and a lost node; a cycle every three hours."""
    fleet = snapshot_from(read_manifests([str(EXAMPLES)])).snapshot
    # The examples leave their services' instances to others; here the operator runs them.
    fleet = replace(fleet, services=tuple(replace(each, is_planned_only=False) for each in fleet.services))
    world = SimulatedWorld(fleet)
    brain = ObservedBrain(brain_with(settings, stopped))
    day = DaySettings(step_s=3 * 3600.0, load=1.2, job_hours=6.0, deadline_s=DEADLINE_S, seed=7)
    for _ in live(fleet, brain, day, stopped, world):
        pass
    for (snapshot, wanted), (plan, outcome) in zip(brain.plans, world.reports, strict=True):
        yield Cycle(snapshot, plan, outcome, wanted=wanted)


def random_fleets(settings: OperatorSettings) -> Iterator[Cycle]:
    """One cycle on each of eight small random clusters, with gangs, taints, priorities and services."""
    brain = brain_with(settings, stopped)
    for seed in range(8):
        yield run_cycle(SimulatedWorld(random_cluster(seed)), brain, Limits(), DEADLINE_S)


BUNDLES: dict[str, tuple[Callable[[OperatorSettings], Iterator[Cycle]], dict[str, Any]]] = {
    "day": (day_of_examples, {}),
    "random-fleets": (random_fleets, {}),
}
"""Name → how its cycles are made, and with which settings."""


def golden(cycles: Iterator[tuple[int, Plan]]) -> str:
    """The guarded plans of these cycles, a line for each action."""
    return "".join(f"cycle {number}\n" + "".join(f"  {line}\n" for line in plan_lines(plan)) for number, plan in cycles)


def main() -> None:
    for name, (made, given) in BUNDLES.items():
        settings = settings_with(**given)
        cycles = list(made(settings))
        recording = recording_of(cycles)
        says = about(recording, shown(settings), settings.identity, MADE_AT_S)
        with (HERE / f"{name}.tar.gz").open("wb") as to:
            write_tar_gz(to, files_of(says, recording), MADE_AT_S)
        plans = golden((number, cycle.plan) for number, cycle in enumerate(cycles, start=1))
        (HERE / f"{name}.plans.txt").write_text(plans, encoding="utf-8")


if __name__ == "__main__":
    main()
