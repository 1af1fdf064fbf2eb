"""Explanation of a placement, and the resources that were short where a pod fits nowhere."""

from cluster.nodes import NodeTaint
from placement.engine.explanation import explain
from placement.engine.packer import Packer
from placement.engine.policy import Knowledge
from placement.policies import POLICIES, policy_named
from tests.builders.fleet import GIB, node, pod, shape, world


def test_the_first_candidate_is_the_one_that_is_chosen_and_runners_up_follow_by_cost() -> None:
    seen = world([node("a", gpus=4), node("b", gpus=1), node("c", gpus=2)])
    for name in set(POLICIES) - {"random"}:
        packer = Packer(seen, policy_named(name, Knowledge(seen, (shape(gpus=1), shape(gpus=4)))))

        told = explain(packer, shape(gpus=1), runners_up=1)

        assert len(told.candidates) == 2
        choice = packer.choose(shape(gpus=1))
        assert choice is not None
        assert (told.candidates[0].node, told.candidates[0].cost) == (choice.node, choice.cost)
        assert told.candidates[0].cost <= told.candidates[1].cost
        assert told.candidates[0].terms


def test_the_reason_of_an_unplaced_pod_counts_the_nodes_short_of_each_resource() -> None:
    seen = world(
        [
            node("cordoned", gpus=8, schedulable=False),
            node("other-type", gpus=8, gpu_type="T4"),
            node("tainted", gpus=8, taints=(NodeTaint("team"),)),
            node("other-zone", gpus=8, labels={"zone": "2"}),
            node("few", gpus=1, labels={"zone": "1"}),
            node("pieces", gpus=4, labels={"zone": "1"}),
            node("no-cpu", gpus=2, cpu_milli=500, memory_bytes=GIB // 2, labels={"zone": "1"}),
        ],
        # 4 × 500 left on "pieces": two GPUs in all, but none of them whole
        [pod(f"p{d}", gpus=1, gpu_milli=500, on="pieces", devices=(d,)) for d in range(4)],
    )
    packer = Packer(seen, policy_named("bestfit", Knowledge(seen)))

    told = explain(packer, shape(gpus=2, gpu_types=("A100",), selector={"zone": "1"}))

    assert told.candidates == ()
    assert told.shortage is not None
    assert told.shortage.code == "NoNodeFits"
    assert told.shortage.figures == {
        "nodes": 7,
        "cordoned": 1,
        "gpu_type": 1,
        "selector": 2,  # the tainted node has no zone either: the selector is looked at first
        "gpus": 1,
        "fragments": 1,
        "cpu": 1,
        "memory": 1,
    }
    assert "1 with another GPU type" in told.shortage.words
