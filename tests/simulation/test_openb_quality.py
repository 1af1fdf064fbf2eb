"""How well bid-price packing does on the public openb traces: one seed each, with room for chance below the means."""

from pathlib import Path

import numpy as np
import pytest

from cluster.snapshot import Snapshot
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from placement.prices.allocation_bound import allocation_bound
from placement.prices.classes import class_of, kinds_of
from simulator.openb.trace_reader import read_trace
from simulator.packing.replay import Replay, published_stream, replay

SEED = 42


def trace_from(folder: Path, name: str) -> Snapshot:
    return read_trace(
        folder / "openb" / "openb_node_list_gpu_node.csv", folder / "openb" / f"openb_pod_list_{name}.csv"
    )


def replayed(trace: Snapshot, policy: str) -> Replay:
    expected = tuple(trace.pods.shapes[row] for row in trace.pods.shape)
    engine = Packer(trace, policy_named(policy, Knowledge(trace, expected, SEED)), content_rank(trace, SEED))
    return replay(trace, published_stream(trace, SEED, until_share=1.0), engine, lambda: 0.0, SEED)


def allocated_pct(run: Replay) -> float:
    return run.curve.at(100, run.curve.allocation_pct)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least_pct"), [("default", 95.9), ("gpuspec33", 94.6), ("multigpu20", 96.0), ("gpushare100", 88.0)]
)
def test_told_the_trace_it_allocates_nearly_what_is_possible(public_data: Path, name: str, least_pct: float) -> None:
    trace = trace_from(public_data, name)
    stream = published_stream(trace, SEED, until_share=1.0)
    asked = [class_of(trace.pods.shapes[index]) for index in stream]
    classes = sorted(set(asked))
    demand = np.array([asked.count(c) for c in classes], dtype=np.float64)

    reached = allocated_pct(replayed(trace, "tonnage"))
    possible = allocation_bound(classes, demand, kinds_of(trace.nodes, trace.gpu_type_names)).gpus

    assert least_pct <= reached <= 100 * possible / trace.nodes.gpus.sum()


@pytest.mark.data
@pytest.mark.slow
def test_the_learning_policy_keeps_scarce_types_for_pods_that_need_them(public_data: Path) -> None:
    # FGD, told the trace, reaches 87.8 here.
    assert allocated_pct(replayed(trace_from(public_data, "gpuspec33"), "tonnage-learning")) >= 94.0
