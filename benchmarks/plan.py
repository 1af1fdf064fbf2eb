"""Plans of the packing engine: what a fleet rented by the hour pays, and the time of a plan with many gangs."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cases import DATA, Row, case, numbers
from cluster.actions import Bind
from cluster.errors import ConfigError, Mistake
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.brain.inline import InlineBrain, decisions_from
from controller.kube.cache import Cache
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView
from controller.kube_world.planning_view import PlanningView
from controller.placers import NodePool
from controller.settings import OperatorSettings
from placement.engine.live_packer import LivePacker
from placement.engine.packer import Packer, content_rank
from placement.packing.planner import pack
from placement.policies import policy_named
from placement.policies.published import BestFit
from tests.builders import fleet, plan_fleets
from tests.builders.live_cluster import LiveCluster
from tests.builders.plan_check import usd_per_hour, wrongs
from tests.rigs.planned_batches import running_groups, seats_of, timed


@case(
    "plan-rented",
    "Dollars of the nodes that a batch starts, with the price of idle nodes and without; openb, generated fleets.",
    quick={"mixes": ("odd",), "pods": (200,), "seeds": (1,), "openb": None},
)
def plan_rented(
    *,
    mixes: Sequence[str] = ("openb", "even", "odd"),
    pods: Sequence[int] = (1000, 3000),
    seeds: Sequence[int] = numbers("1-3"),
    policies: Sequence[str] = ("tonnage", "bestfit"),
    openb: Path | None = DATA / "openb",
) -> Iterator[Row]:
    """A row for each mix, size, seed and policy; every plan is counted again, pod by pod, by code that is not ours.

    even, odd: ten pods a node, eight GPU types and CPU servers, gangs, some within a rack; requests that divide
    servers evenly, or odd ones. openb: its pods, drawn with replacement, on its 1,213 nodes.
    """
    for mix in mixes:
        if mix not in ("even", "odd", "openb") or (mix == "openb" and openb is None):
            raise ConfigError(Mistake(f"mix {mix!r}", "is unknown or has no data"))
        for count in pods:
            for seed in seeds:
                asks = plan_fleets.ASKS if mix == "even" else plan_fleets.odd_asks(seed)
                if mix == "openb" and openb is not None:
                    seen = plan_fleets.openb_batch(openb, count, seed)
                else:
                    empty = plan_fleets.fleet(count // plan_fleets.PODS_PER_NODE, asks)
                    seen = plan_fleets.with_batch(empty, count, seed, asks)
                for policy in policies:
                    row: Row = {"mix": mix, "pods": count, "nodes": len(seen.nodes), "seed": seed, "policy": policy}
                    for name, priced in {"without": False, "with": True}.items():
                        row[name] = _rented(seen, LivePacker(partial(policy_named, policy), returns_idle_nodes=priced))
                    yield row


def _rented(seen: Snapshot, live: LivePacker) -> dict[str, Any]:
    took_s, plan = timed(lambda: pack(seen, live.packer(seen)))
    seats = seats_of(seen, [action for action in plan.actions if isinstance(action, Bind)])
    if wrong := wrongs(seen, seats):
        raise AssertionError("; ".join(wrong[:5]))
    return {
        "usd_per_hour": round(usd_per_hour(seen, seats), 2),
        "left_out": len(seen.pods.pending) - len(seats),
        "cpu_s": round(took_s, 2),
    }


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
