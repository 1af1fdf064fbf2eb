"""Bid-price packing where pods leave and the mix changes: it must not fall below FGD, which knows both mixes."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import IntArray
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.openb.generator import generate, trace_of
from simulator.packing.replay import Curve, replay

NODES = 120
LOAD = 1.05
"""GPUs asked for in steady state, as a share of the fleet: a little more than there are, so that pods are dropped."""
TURNOVERS = 4.0
"""GPUs that arrive of each mix, as a share of the fleet."""


def still() -> float:
    """Clock that stands still: decision times do not matter here."""
    return 0.0


def turning(first: str, second: str, seed: int) -> tuple[Snapshot, IntArray, IntArray]:
    """A fleet, the arrivals of one mix and then of another, and after how many arrivals each pod leaves."""
    chance = np.random.default_rng(seed)
    stream: list[PodShape] = []
    stays: list[int] = []
    for mix in (first, second):
        trace = trace_of(generate(NODES, mix=mix, seed=seed), {})
        pods = [trace.pods.shapes[row] for row in trace.pods.shape]
        gpus = sum(p.total_gpu_milli for p in pods) / 1000 / len(pods)
        arrivals = int(TURNOVERS * trace.nodes.gpus.sum() / gpus)
        stream += [pods[n] for n in chance.integers(0, len(pods), arrivals)]
        # Arrivals times mean GPUs times mean stay is what runs at a time.
        stays += np.ceil(chance.exponential(LOAD * trace.nodes.gpus.sum() / gpus, arrivals)).astype(int).tolist()
    shapes = tuple(dict.fromkeys(stream))
    number = {known: n for n, known in enumerate(shapes)}
    fleet = trace_of(generate(NODES, mix=first, seed=seed), {})
    seen = replace(fleet, pods=replace(fleet.pods, shapes=shapes, shape=fleet.pods.shape % len(shapes)))
    return seen, np.array([number[p] for p in stream]), np.array(stays)


def mean_allocation(policy: str, first: str, second: str, seed: int) -> tuple[float, float]:
    """Mean allocation in percent while each mix arrives, once the fleet has filled up."""
    seen, stream, stays = turning(first, second, seed)
    told = tuple(seen.pods.shapes[n] for n in stream)
    chosen = policy_named(policy, Knowledge(seen, told if policy == "fgd" else (), seed))
    engine = Packer(replace(seen, pods=seen.pods), chosen, content_rank(seen, seed))
    curve: Curve = replay(seen, stream, engine, still, seed, stays).curve
    turn = curve.arrived_pct[-1] / 2
    phases = (curve.arrived_pct > 150) & (curve.arrived_pct < turn), curve.arrived_pct >= turn
    return tuple(float(curve.allocation_pct[phase].mean()) for phase in phases)  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"), [("default", "gpuspec33"), ("multigpu20", "gpuspec33"), ("gpushare100", "default")]
)
def test_what_learns_as_it_goes_stays_above_fgd_when_pods_leave_and_the_mix_turns(first: str, second: str) -> None:
    ours, theirs = (
        np.mean([mean_allocation(policy, first, second, seed) for seed in (1, 2)], axis=0)
        for policy in ("tonnage-learning", "fgd")
    )

    assert ours[0] >= theirs[0]
    assert ours[1] >= theirs[1]
