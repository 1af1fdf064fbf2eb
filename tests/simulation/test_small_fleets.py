"""Bid-price packing on a few nodes, where half of the pods have come before their mix is known."""

import numpy as np
import pytest

from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.openb.generator import generate, trace_of
from simulator.packing.replay import published_stream, replay

SEEDS = range(1, 9)
"""One seed differs from the next by 3 points on 12 nodes: a node of 8 GPUs is a tenth of the fleet."""


def allocation_pct(policy: str, nodes: int, mix: str, seed: int) -> float:
    """Allocation when as many GPUs were requested as there are."""
    trace = trace_of(generate(nodes, mix=mix, seed=seed), {})
    pods = tuple(trace.pods.shapes[row] for row in trace.pods.shape)
    engine = Packer(trace, policy_named(policy, Knowledge(trace, pods, seed)), content_rank(trace, seed))
    run = replay(trace, published_stream(trace, seed), engine, lambda: 0.0, seed)
    return run.curve.at(100, run.curve.allocation_pct)


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "mix"), [(12, "gpuspec33"), (25, "gpuspec33"), (25, "default")])
def test_what_learns_on_a_small_fleet_is_not_worse_than_fgd_that_knows_the_mix(nodes: int, mix: str) -> None:
    ours, theirs = (
        np.mean([allocation_pct(policy, nodes, mix, seed) for seed in SEEDS]) for policy in ("tonnage-learning", "fgd")
    )

    assert ours >= theirs
