"""Plans of the packing engine: what a fleet rented by the hour pays for the nodes that a batch starts."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cases import DATA, Row, case, numbers
from cluster.actions import Bind
from cluster.errors import ConfigError, Mistake
from cluster.snapshot import Snapshot
from placement.engine.live_packer import LivePacker
from placement.packing.planner import pack
from placement.policies import policy_named
from tests.builders import plan_fleets
from tests.builders.plan_check import usd_per_hour, wrongs
from tests.rigs.planned_batches import seats_of, timed


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
