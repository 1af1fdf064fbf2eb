"""Time of placement decisions on partly used fleets of increasing size."""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.cases import Row, case
from cluster.arrays import FloatArray
from cluster.snapshot import Snapshot
from simulator.openb.generator import generate, trace_of
from tests.rigs.used_fleet import filled, packer_of, repeated


@case(
    "packing-speed",
    "Time of a placement decision of three policies on generated fleets of 1,213 to 20,000 nodes.",
    quick={"sizes": (100,), "loads": (30,), "policies": ("bestfit",), "warm_up": 5, "decisions": 20},
)
def packing_speed(
    *,
    policies: Sequence[str] = ("bestfit", "fgd", "tonnage"),
    sizes: Sequence[int] = (1213, 5000, 20_000),
    loads: Sequence[int] = (50, 90),
    warm_up: int = 500,
    decisions: int = 2000,
    seeds: Sequence[int] = (42,),
) -> Iterator[Row]:
    """A row for each policy, load and size; one process, decision by decision.

    A policy fills a generated fleet up to the load; nodes and running pods are then repeated up to each size. Then pods
    arrive: `first` is the first decision with an empty cache; the warm-up is not counted; the rest is timed.
    """
    for seed in seeds:
        trace = trace_of(generate(1213, seed=seed), {})
        for policy in policies:
            for load in loads:
                used = filled(trace, policy, load, seed)
                for size in sizes:
                    times_ms = 1000.0 * decision_s(used, policy, size, warm_up + decisions, seed)
                    kept = times_ms[warm_up:]
                    yield {
                        "policy": policy,
                        "load_pct": load,
                        "nodes": size,
                        "decision_ms": {
                            "mean": round(float(kept.mean()), 4),
                            "p50": round(float(np.quantile(kept, 0.5)), 4),
                            "p99": round(float(np.quantile(kept, 0.99)), 4),
                            "first": round(float(times_ms[0]), 4),
                        },
                    }


def decision_s(used: Snapshot, policy_name: str, size: int, count: int, seed: int) -> FloatArray:
    """Seconds of each decision on the repeated fleet. Arrivals are drawn from the running pods."""
    fleet = repeated(used, size)
    packer = packer_of(fleet, used, policy_name, seed)
    drawn = np.random.default_rng([seed, size]).choice(used.pods.shape, count)
    spent_s = np.zeros(count)
    for number, index in enumerate(drawn):
        shape = used.pods.shapes[index]
        began = time.perf_counter()
        packer.policy.arrived(shape)
        choice = packer.choose(shape)
        if choice is not None:
            packer.place(shape, choice)
        spent_s[number] = time.perf_counter() - began
        packer.policy.upkeep(packer.ledger)
    return spent_s
