"""Replays: order of arrivals, times of the measurements, and pods that leave."""

import numpy as np

from cluster.arrays import IntArray
from cluster.snapshot import Snapshot
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.packing.replay import GPUS_TOGETHER, WHOLE_GPU, Replay, published_stream, replay
from tests.builders.fleet import Pod, node, pod, world
from tests.builders.renamed import with_renamed_nodes
from tests.clock import ticking


def played(trace: Snapshot, stream: list[int], stay: IntArray | None = None, policy: str = "bestfit") -> Replay:
    packer = Packer(trace, policy_named(policy, Knowledge(trace)))
    return replay(trace, np.array(stream), packer, ticking(1.0), 7, stay)


def some_pods() -> list[Pod]:
    return [pod(f"p{n}", gpus=1 + n % 2) for n in range(30)] + [pod(f"q{n}", gpus=1, gpu_milli=300) for n in range(10)]


def test_every_pod_of_the_trace_arrives_once_before_any_arrives_again() -> None:
    trace = world([node(f"n{n}", gpus=8) for n in range(10)], some_pods())

    stream = published_stream(trace, seed=3)

    first = stream[: len(trace.pods)]
    assert sorted(first.tolist()) == sorted(trace.pods.shape.tolist())
    # 15 pods of one GPU, 15 of two, 10 of 0.3: 48 GPUs. The limit is 130 % of 80, which is 104.
    asked = sum(trace.pods.shapes[index].total_gpu_milli for index in stream)
    assert 104_000 - 1000 <= asked <= 104_000 + 1000  # one device short, or one more device of a two-GPU pod


def test_a_stream_is_its_seed() -> None:
    trace = world([node("a", gpus=16), node("b", gpus=16), node("c", gpus=16)], some_pods())

    assert published_stream(trace, 3).tolist() == published_stream(trace, 3).tolist()
    assert published_stream(trace, 3).tolist() != published_stream(trace, 4).tolist()


def test_a_trace_that_asks_more_than_the_limit_is_cut_off_there() -> None:
    trace = world([node("a", gpus=10)], some_pods())

    asked = [trace.pods.shapes[index].total_gpu_milli for index in published_stream(trace, seed=3)]

    assert 13_000 - 2000 < sum(asked) <= 13_000


def test_what_is_allocated_stops_where_nothing_fits_and_the_rest_is_counted() -> None:
    trace = world([node("a", gpus=2), node("b", gpus=2)], [pod("p", gpus=1), pod("q", gpus=2)], prices={"A100": 3.0})

    result = played(trace, [0, 1, 1, 0, 0])  # 1 + 2 placed; 2 finds no two together; 1 placed; 1 too many

    curve = result.curve
    assert curve.arrived_pct.tolist() == [25, 75, 125, 150, 175]
    assert curve.allocation_pct.tolist() == [25, 75, 75, 100, 100]
    assert curve.allocated_cost_per_hour.tolist() == [3, 9, 9, 12, 12]
    assert curve.at(75, curve.allocation_pct) == 75
    assert np.isnan(curve.at(200, curve.allocation_pct))
    assert result.shortages == {GPUS_TOGETHER: 1, WHOLE_GPU: 1}
    assert result.decision_s.tolist() == [1.0] * 5  # the clock was read once before and once after each


def test_fragments_are_of_what_is_idle() -> None:
    # Half of the pods ask for one GPU, half for two. When one of two GPUs is taken, the other is of no use to a pair:
    # expected fragment 0.5 GPU, which is half of what is idle and a quarter of the capacity.
    trace = world([node("a", gpus=2)], [pod("p", gpus=1), pod("q", gpus=2)])

    curve = played(trace, [0]).curve

    assert curve.fragmentation_pct.tolist() == [50.0]
    assert curve.stranded_pct.tolist() == [25.0]


def test_pods_leave_after_their_stay_and_free_their_resources() -> None:
    trace = world([node("a", gpus=1)], [pod("p", gpus=1)])

    result = played(trace, [0, 0, 0], np.array([2, 1, 1]))

    # The first stays for two further arrivals: the second finds no room, the third does.
    assert sum(result.shortages.values()) == 1
    assert result.curve.allocation_pct.tolist() == [100.0] * 3


def test_names_do_not_change_what_a_replay_finds() -> None:
    nodes = [node(f"n{n}", gpus=2 + 2 * (n % 3), cpu_milli=16_000 * (1 + n % 2)) for n in range(12)]
    trace = world(nodes, some_pods())
    stream = published_stream(trace, seed=3)

    def found(fleet: Snapshot) -> list[float]:
        policy = policy_named("fgd", Knowledge(fleet, tuple(fleet.pods.shapes)))
        packer = Packer(fleet, policy, content_rank(fleet, seed=5))
        return replay(fleet, stream, packer, ticking(1.0), 3).curve.allocation_pct.tolist()

    renamed = with_renamed_nodes(trace, seed=1)

    assert sorted(renamed.nodes.names) == sorted(trace.nodes.names)
    assert sorted(renamed.nodes.gpus.tolist()) == sorted(trace.nodes.gpus.tolist())
    assert renamed.nodes.gpus.tolist() != trace.nodes.gpus.tolist()
    assert found(renamed) == found(trace)
