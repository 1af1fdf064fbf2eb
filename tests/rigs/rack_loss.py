"""Loss of a rack: the plan of the first cycle after it, beside one that knew of the loss beforehand.

    python -m tests.rigs.rack_loss --nodes 2000 --racks 20 --services 100

A fleet runs its services, and a rack goes. `first` is the operator's next plan, within its deadline, from the memory of
the plans before. `prepared` is the plan of an operator that has had all the time in the world for exactly this loss.
Deadlines are amounts of work, so that a busy machine changes nothing but the times.
"""

import argparse
import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from cluster.snapshot import PENDING, Snapshot
from controller.background.kinds import KINDS
from controller.background.mix_search import answers_in, tasks_of
from controller.brain.inline import InlineBrain, decisions_from, limits_from
from controller.guard import guard
from controller.settings import settings_from
from placement.budget import stopped
from simulator.scenarios import losses, without_nodes
from tests.builders.many_services import definitions, fleet, services
from tests.mix_exact.comparison import observed

RACK = "rack"
ROUNDS = 6
"""Plans with searches between them, after which an operator's memory is as good as it becomes."""


def world(nodes: int, racks: int, count: int, load: float, seed: int) -> Snapshot:
    """A fleet whose racks are of one GPU type each where there are enough, so that a rack's loss hurts most."""
    made = sorted(fleet(nodes), key=lambda node: str(node["metadata"]["labels"]["nvidia.com/gpu.product"]))
    for number, node in enumerate(made):
        node["metadata"]["labels"][RACK] = f"r{number * racks // nodes:02d}"
    return observed([*made, *definitions(), *services(count, nodes * 8, seed, load)])


def searched(brain: InlineBrain) -> None:
    """What background tasks would find for the last plan's open questions."""
    asked, brain.memory.mix.open = brain.memory.mix.open, []
    for task in tasks_of(asked):
        brain.memory.mix.learn(answers_in(KINDS[task.kind](*task.inputs)))


def settled(brain: InlineBrain, seen: Snapshot, deadline_s: float) -> Snapshot:
    """The fleet after plans and searches have come to rest."""
    for _ in range(ROUNDS):
        seen = seen.after(guard(seen, brain.plan(seen, deadline_s), LIMITS).actions)
        searched(brain)
    return seen


SETTINGS = settings_from({})
LIMITS = limits_from(SETTINGS)


def figures(brain: InlineBrain, seen: Snapshot, deadline_s: float) -> tuple[dict[str, Any], Snapshot]:
    """A plan's dollars per hour, refused and missing demand, and its time."""
    began_s, cpu_s = time.monotonic(), time.process_time()
    plan = guard(seen, brain.plan(seen, deadline_s), LIMITS)
    took = {"wall_s": round(time.monotonic() - began_s, 2), "cpu_s": round(time.process_time() - cpu_s, 2)}
    after = seen.after(plan.actions)
    rate = {each.name: each.demand.rate_per_s for each in seen.services if each.demand}
    refused = [each.service for each in plan.services if each.refusal is not None]
    return {
        "usd_per_hour": round(sum(each.cost_per_hour for each in plan.services), 2),
        "unserved_share": round(sum(rate[name] for name in refused) / sum(rate.values()), 5),
        "refused": len(refused),
        "waiting": int((after.pods.node == PENDING).sum()),
        "steps": len(plan.actions),
        **took,
    }, after


def measured(nodes: int, racks: int, count: int, load: float, seed: int) -> Iterator[dict[str, Any]]:
    deadline_s = SETTINGS.plan_deadline_s
    brain = InlineBrain(decisions_from(SETTINGS, awaits_pods=False), stopped)
    rest = settled(brain, world(nodes, racks, count, load, seed), deadline_s)
    before, _ = figures(copy.deepcopy(brain), rest, deadline_s)
    yield {"rack": "none", "pods": len(rest.pods), "before": before}
    for label, rack in losses(rest, RACK):
        gone = [row for row, labels in enumerate(rest.nodes.labels) if labels.get(label) == rack]
        lost = without_nodes(rest, gone)
        went = int(np.isin(rest.pods.node, gone).sum())
        first, _ = figures(copy.deepcopy(brain), lost, deadline_s)
        knowing = copy.deepcopy(brain)
        for _ in range(ROUNDS // 3):
            figures(knowing, lost, deadline_s)
            searched(knowing)
        prepared, _ = figures(knowing, lost, deadline_s)
        more = first["usd_per_hour"] / prepared["usd_per_hour"] - 1
        yield {"rack": rack, "nodes": len(gone), "stopped": went, "first": first, "prepared": prepared,
               "more_usd_in_percent": round(100 * more, 3)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--racks", type=int, default=20)
    parser.add_argument("--services", type=int, default=100)
    parser.add_argument("--load", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for row in measured(given.nodes, given.racks, given.services, given.load, given.seed):
        print(json.dumps(row), flush=True)  # noqa: T201 - a program's answer


if __name__ == "__main__":
    main()
