"""Planning of batches: cost above the proven bound and time, beside rivals, and with more time.

One process, one core, unless a case says otherwise. Every plan is verified by code that is independent of the planner.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import DATA, Row, case, numbers
from cluster import errors, snapshot
from cluster.workloads import Gang
from controller.brain.inline import InlineBrain, decisions_from
from controller.kube.cache import Cache
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView
from controller.kube_world.planning_view import PlanningView
from controller.placers import NodePool
from controller.settings import OperatorSettings
from placement.batch.columns import Memory
from placement.batch.ladder import BatchSettings, plan_batch
from placement.batch.problem import batch_of
from placement.engine.packer import Packer, content_rank
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders import fleet, plan_fleets
from tests.builders.live_cluster import LiveCluster
from tests.rigs.plan_rivals import Outcome, best_fit_decreasing, direct_model
from tests.rigs.planned_batches import binds_of, pct_above, planned_by, running_groups, timed, verified, warm_plans

RIVALS: Mapping[str, Callable[[snapshot.Snapshot, float], Outcome]] = {
    "bfd": lambda seen, _: best_fit_decreasing(batch_of(seen)),
    "cbc": lambda seen, limit_s: direct_model(batch_of(seen), "CBC", limit_s),
    "highs": lambda seen, limit_s: direct_model(batch_of(seen), "HiGHS", limit_s),
}


@case(
    "plan",
    "Cost above the proven bound and time of batches of 1,000 to 20,000 pods: cold, warm, best fit.",
    quick={"pods": (200,), "mixes": ("odd",), "churns": 1},
)
@case(
    "plan-rivals",
    "The batches of `plan` by best-fit decreasing, CBC and HiGHS, within 10 s each.",
    given={"pods": (1000, 10_000), "churns": 0, "rivals": tuple(RIVALS)},
    quick={"pods": (200,), "mixes": ("odd",), "rivals": ("bfd", "highs"), "limit_s": 1.0},
)
@case(
    "plan-seeds",
    "Cost and time of cold plans of 1,000 to 50,000 pods with three seeds.",
    given={"pods": (1000, 2000, 5000, 10_000, 20_000, 50_000), "seeds": numbers("1-3"), "churns": 0},
    quick={"pods": (200,), "mixes": ("even",), "seeds": (1,)},
)
def plan(
    *,
    pods: Sequence[int] = (1000, 10_000, 20_000),
    mixes: Sequence[str] = ("even", "odd"),
    seeds: Sequence[int] = (1,),
    churns: int = 40,
    rivals: Sequence[str] = (),
    limit_s: float = 10.0,
) -> Iterator[Row]:
    """A row for each mix, size and seed. Ten pods a node, eight GPU types and CPU servers, gangs, some within a rack.

    mixes: requests that divide servers evenly, or odd ones. churns: warm plans, each after 2 % of the pods changed. A
    plan's time is CPU time from the snapshot to the assignment of pods; `as_plan_s` adds the binds with their reasons.
    Solvers may run in processes of their own, so the seconds of rivals are elapsed time.
    """
    if unknown := {*mixes} - {"even", "odd"} | {*rivals} - {*RIVALS}:
        raise errors.ConfigError(tuple(errors.Mistake(name, "is no mix and no rival") for name in sorted(unknown)))
    for mix in mixes:
        for count in pods:
            for seed in seeds:
                asks = plan_fleets.ASKS if mix == "even" else plan_fleets.odd_asks(seed)
                first = plan_fleets.with_batch(
                    plan_fleets.fleet(count // plan_fleets.PODS_PER_NODE, asks), count, seed, asks
                )
                haste = [timed(partial(planned_by, first, Memory(), "best-fit")) for _ in range(7)]
                cold_s, cold = timed(partial(planned_by, first, Memory(), "columns"))
                as_plan_s, _ = timed(partial(binds_of, first, cold))
                verified(first, haste[0][1])
                verified(first, cold)
                row: Row = {
                    "mix": mix,
                    "pods": count,
                    "nodes": len(first.nodes),
                    "gangs": len(first.gangs),
                    "seed": seed,
                    "best_fit": {
                        "ms": round(float(np.median([seconds for seconds, _ in haste])) * 1e3, 1),
                        "gap_pct": pct_above(haste[0][1].usd_per_hour, cold.bound_usd),
                    },
                    "cold": {
                        "s": round(cold_s, 3),
                        "usd_per_hour": round(cold.usd_per_hour, 2),
                        "bound_usd_per_hour": round(cold.bound_usd, 2),
                        "gap_pct": round(cold.gap * 100, 3),
                        "rounds": cold.rounds,
                        "left_out": len(cold.waiting),
                        "as_plan_s": round(cold_s + as_plan_s, 3),
                    },
                }
                if churns:
                    row["warm"] = warm_plans(first, cold.memory, [1000 * seed + turn for turn in range(churns)], asks)
                for rival in rivals:
                    took_s, found = timed(partial(RIVALS[rival], first, limit_s), time.perf_counter)
                    usd = found.usd_per_hour
                    row[rival] = {"seconds": round(took_s, 2), "status": found.status, "usd_per_hour": usd}
                    row[rival] |= {} if usd is None else {"gap_pct": pct_above(usd, cold.bound_usd)}
                yield row


RACK = "topology.tonnage.dev/rack"
LEVELS: Mapping[str, dict[str, Any]] = {
    "anywhere": {}, "in one rack": {"within": RACK}, "in few racks": {"prefer_within": RACK}
}  # fmt: skip
MEMBERS, RACK_NODES = 16, 20


@case(
    "plan-gangs",
    "CPU time of a plan for 1,000 gangs of 16 on 2,000 nodes, and of a cycle with 5,000 groups at rest.",
    quick={"gangs": 10, "nodes": 40, "at_rest": 20},
)
def plan_gangs(*, gangs: int = 1000, nodes: int = 2000, at_rest: int = 5000, tries: int = 3) -> Iterator[Row]:
    """A row for each demand on topology, and one for groups of two that run: the least CPU seconds of some tries."""
    for where, topology in LEVELS.items():
        racks = [fleet.node(f"n{n}", 8, labels={RACK: f"r{n // RACK_NODES}"}) for n in range(nodes)]
        pods = [fleet.pod(f"ns/r{n}", 1, on=f"n{n}", devices=(0,)) for n in range(0, nodes, 3)]
        pods += [fleet.pod(f"ns/g{g}-{m}", 1, gang=f"ns/g{g}") for g in range(gangs) for m in range(MEMBERS)]
        seen = fleet.world(racks, pods, [Gang(f"ns/g{g}", MEMBERS, **topology) for g in range(gangs)])
        packers = [Packer(seen, BestFit(), rank=content_rank(seen)) for _ in range(tries)]
        found = [timed(partial(pack, seen, packer)) for packer in packers]
        binds = len(found[0][1].actions)
        yield {
            "case": where,
            "gangs": gangs,
            "nodes": nodes,
            "binds": binds,
            "cpu_s": round(min(took_s for took_s, _ in found), 3),
        }
    live = LiveCluster(running_groups(at_rest))
    planning = PlanningView(CachedView(live.observer, Cache(DEPLOYMENTS)), [NodePool("bind", {})], clock=live.clock)
    brain = InlineBrain(decisions_from(OperatorSettings()))
    brain.plan(planning.snapshot(), 2.0)
    cycles = [timed(lambda: brain.plan(planning.snapshot(), 2.0)) for _ in range(tries)]
    if any(plan.actions for _, plan in cycles):
        raise AssertionError("groups at rest are changed")
    yield {"case": "at rest", "gangs": at_rest, "cpu_s": round(min(took_s for took_s, _ in cycles), 4)}


HEAVY: Mapping[str, plan_fleets.HeavyCase] = {
    "heavy-30-classes": plan_fleets.HeavyCase(200, 1_200, 30),
    "heavy-60-classes": plan_fleets.HeavyCase(1_000, 8_000, 60),
    "heavy-140-classes": plan_fleets.HeavyCase(1_000, 6_000, 140),
    "heavy-large": plan_fleets.HeavyCase(3_000, 20_000, 40),
    "in-use-small": plan_fleets.HeavyCase(100, 900, 25, 0.5),
    "in-use-30-classes": plan_fleets.HeavyCase(500, 4_000, 30, 0.5),
    "in-use-60-classes": plan_fleets.HeavyCase(1_000, 9_000, 60, 0.5),
    "in-use-large": plan_fleets.HeavyCase(2_000, 18_000, 60, 0.5),
}
ODD, OPENB = "generated-odd", "openb"


@case(
    "plan-unseen",
    "Plans of batches with heavy tails and of openb's requests, within 2 s and 20 s.",
    quick={"batches": ("in-use-small",), "within_s": (0.5,), "openb": None},
)
def plan_unseen(
    *,
    batches: Sequence[str] = (ODD, *HEAVY, OPENB),
    seeds: Sequence[int] = (1,),
    within_s: Sequence[float] = (2.0, 20.0),
    openb: Path | None = DATA / "openb",
) -> Iterator[Row]:
    """A row for each batch, seed and time (the operator's default, and a long one): a cold plan, and a warm one."""
    for name in batches:
        for seed in seeds:
            if name in HEAVY:
                seen = plan_fleets.heavy_batch(HEAVY[name], seed)
            elif name == OPENB and openb is not None:
                seen = plan_fleets.openb_batch(openb, 3_000, seed)
            elif name == ODD:
                seen = plan_fleets.with_batch(
                    plan_fleets.fleet(1000, plan_fleets.odd_asks(seed)), 10_000, seed, plan_fleets.odd_asks(seed)
                )
            else:
                raise errors.ConfigError(errors.Mistake(f"batch {name}", "is unknown or has no data"))
            for limit_s in within_s:
                settings = BatchSettings(within_s=limit_s)
                cold_s, cold = timed(partial(plan_batch, seen, Memory(), settings))
                warm_s, warm = timed(partial(plan_batch, seen, cold.memory, settings))
                verified(seen, cold)
                verified(seen, warm)
                hasty = plan_batch(seen, Memory(), settings, rung="best-fit")
                batch = batch_of(seen, among=cold.startable)
                yield {
                    "case": name,
                    "seed": seed,
                    "pods": len(seen.pods.pending),
                    "nodes": len(seen.nodes),
                    "in_use": int(batch.in_use.sum()),
                    "classes": len(batch.shapes),
                    "kinds": len(batch.kinds),
                    "within_s": limit_s,
                    "rung": cold.rung,
                    "rounds": cold.rounds,
                    "cold_cpu_s": round(cold_s, 2),
                    "warm_cpu_s": round(warm_s, 2),
                    "gap_pct": round(cold.gap * 100, 2),
                    "warm_gap_pct": round(warm.gap * 100, 2),
                    "node_usd": round(cold.cost.node_usd, 2),
                    "best_fit_node_usd": round(hasty.cost.node_usd, 2),
                    "short": int(cold.startable[cold.waiting].sum()),
                    "best_fit_short": int(hasty.startable[hasty.waiting].sum()),
                    "impossible": int((~cold.startable[cold.waiting]).sum()),
                }
