"""Ablation of background tasks: what each kind buys, on which load, at what cost.

    python -m tests.rigs.background_ablation            # docs/ray.md: a quarter of an hour of one core
    python -m tests.rigs.background_ablation --quick

`load_fits`: the autoscaler's replay with forecasts that are fitted twice a day, and with those that never are. J is the
cost over that of perfect foresight. `mix_search`: a plan that has the answers to the open questions of the one before
it, beside the same plan without them. Processor time is that of the tasks' own function.
"""

import argparse
import copy
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import regular
from benchmarks.cases import DATA
from benchmarks.scaling import TRACES, scenarios
from cluster.demand import Forecast
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.background import load_fits, mix_search
from controller.background.kinds import KINDS
from controller.brain.inline import InlineBrain, decisions_from
from controller.settings import settings_from
from placement.budget import stopped
from simulator.scaling import replay, study
from tests.builders.many_services import definitions, fleet, services, tight_manifests
from tests.mix_exact.comparison import observed

LEAD_MIN = 5.0
Row = dict[str, object]


def without_fits(scenario: replay.LoadScenario) -> tuple[Forecast | None, ...]:
    """Forecasts of a forecaster that knows the training days and is never fitted."""
    start_s = scenario.start_s - len(scenario.trained) * scenario.step_s
    forecaster = OnlineForecaster.of(regular(start_s, scenario.step_s, scenario.trained), None)
    found = []
    for step, load in enumerate(scenario.load.tolist()):
        at_s = scenario.start_s + step * scenario.step_s
        forecaster.observe(at_s, load)
        found.append(forecaster.forecast(at_s))
    return tuple(found)


def fits(traces: Sequence[Path], train_days: int, days: int) -> Iterator[Row]:
    """A row for each trace."""
    lead_s = 60.0 * LEAD_MIN
    for scenario in scenarios(traces, train_days, days):
        scores = [
            study.replayed(scenario, study.TONNAGE, lead_s, study.outlook_of(forecasts)).score
            for forecasts in (without_fits(scenario), study.forecasts_of(scenario))
        ]
        history = regular(0.0, scenario.step_s, scenario.trained)
        (batch,) = load_fits.task_of([load_fits.LoadHistory("d/one", history)]).inputs
        began_s = time.process_time()
        KINDS[load_fits.KIND](batch)
        yield {
            "kind": load_fits.KIND,
            "load": f"{scenario.trace}, {days} days, {LEAD_MIN:g} min ahead",
            "without": f"J {scores[0].j:.3f}, {scores[0].violation_minutes_pct:.2f} % of minutes short",
            "with": f"J {scores[1].j:.3f}, {scores[1].violation_minutes_pct:.2f} %",
            "gain_pct": round(100 * (1 - scores[1].j / scores[0].j), 1),
            "tasks": round(days * 86_400 / study.REFIT_S),
            "cpu_s": round((time.process_time() - began_s) * days * 86_400 / study.REFIT_S, 2),
        }


def mixes(name: str, seen: Snapshot, turns: int = 1) -> Row:
    """A row for a fleet. turns: plans before, each with the answers to the questions of the one before it, or none."""
    deadline_s, found, spent_s, tasks = settings_from({}).plan_deadline_s, dict[bool, Plan](), 0.0, 0
    for is_searched in (False, True):
        brain = InlineBrain(decisions_from(settings_from({}), awaits_pods=False), clock=stopped)
        found[is_searched] = brain.plan(copy.copy(seen), deadline_s)
        for _ in range(turns):
            asked, brain.memory.mix.open = brain.memory.mix.open, []
            for task in mix_search.tasks_of(asked) if is_searched else ():
                began_s = time.process_time()
                brain.memory.mix.learn(mix_search.answers_in(KINDS[task.kind](*task.inputs)))
                spent_s, tasks = spent_s + time.process_time() - began_s, tasks + 1
            found[is_searched] = brain.plan(copy.copy(seen), deadline_s)
    costs = {each: sum(one.cost_per_hour for one in plan.services) for each, plan in found.items()}
    gaps = {each: plan.certificates["mix"].gap for each, plan in found.items()}
    unserved = {each: sum(one.refusal is not None for one in plan.services) for each, plan in found.items()}
    return {
        "kind": mix_search.KIND,
        "load": name,
        **{
            word: f"${costs[each]:,.2f}/h, gap {100 * gaps[each]:.2f} %, {unserved[each]} unserved"
            for word, each in (("without", False), ("with", True))
        },
        "gain_pct": round(100 * (1 - costs[True] / costs[False]), 2),
        "tasks": tasks,
        "cpu_s": round(spent_s, 1),
    }


def ablation(kinds: Sequence[str], *, quick: bool) -> Iterator[Row]:
    if load_fits.KIND in kinds:
        data = Path(os.environ.get("TONNAGE_DATA", "data"))
        traces = () if quick else [data / path.relative_to(DATA) for path in TRACES]
        yield from fits(traces, *((1, 1) if quick else (7, 3)))
    if mix_search.KIND not in kinds:
        return
    for seed in (1,) if quick else (1, 2, 3):
        tight = observed(tight_manifests(seed, services=5 if quick else 20))
        yield mixes(f"{len(tight.services)} services that compete for a tight stock (seed {seed})", tight)
        if seed == 1 and not quick:
            for count, nodes in ((100, 2_000), (500, 10_000)):
                seen = observed([*fleet(nodes), *definitions(), *services(count, nodes * 8, 1)])
                yield mixes(f"{count} services on {nodes:,} nodes", seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    for row in ablation(given.kinds.split(","), quick=given.quick):
        print(json.dumps(row), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
