"""A pod that fits nowhere is counted under the resource that was short."""

import pytest

from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.packer import Packer
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.packing import replay as short
from tests.builders.fleet import GIB, node, pod, shape, world


def packer_for(fleet: Snapshot) -> Packer:
    return Packer(fleet, policy_named("bestfit", Knowledge(fleet)))


FULL_OF_CPU_PODS = world(
    [node("a", gpus=2, gpu_type="T4", cpu_milli=8000), node("b", gpus=2, gpu_type="G2", cpu_milli=8000)],
    # T4 keeps both GPUs and 1 core; G2 keeps 7 cores, one GPU half used and one whole.
    [pod("x", on="a", cpu_milli=7000), pod("y", 1, gpu_milli=500, on="b", devices=(0,))],
)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (shape(1, gpu_types=("H100",)), short.NO_SUCH_NODE),
        (shape(4), short.NO_SUCH_NODE),
        (shape(1, gpu_types=("T4",), cpu_milli=2000), short.CPU_BESIDE_GPUS),
        (shape(1, memory_bytes=600 * GIB), short.MEMORY_BESIDE_GPUS),
        (shape(2, gpu_types=("G2",), cpu_milli=500), short.OTHER_MODELS_ONLY),
        (shape(0, cpu_milli=9000), short.CPU),
        (shape(0, memory_bytes=600 * GIB), short.MEMORY),
    ],
)
def test_the_scarcest_thing_is_named(wanted: PodShape, reason: str) -> None:
    packer = packer_for(FULL_OF_CPU_PODS)

    assert packer.choose(wanted) is None
    assert short.scarcest(packer, wanted) == reason


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (shape(2), short.GPUS_TOGETHER),  # one whole GPU is left on each node
        (shape(1, gpu_milli=600, gpu_types=("T4",)), short.PART_OF_GPU),
        (shape(1, gpu_types=("T4",)), short.WHOLE_GPU),
    ],
)
def test_a_gpu_shortage_is_named_by_the_kind_of_request(wanted: PodShape, reason: str) -> None:
    nodes = [node("a", gpus=2, gpu_type="T4"), node("b", gpus=2, gpu_type="T4")]
    running = [pod(f"p{n}", 1, on=name, devices=(d,)) for n, (name, d) in enumerate((("a", 0), ("b", 0)))]
    if wanted.gpus == 1:
        running += [
            pod("q0", 1, gpu_milli=500, on="a", devices=(1,)),
            pod("q1", 1, gpu_milli=500, on="b", devices=(1,)),
        ]
    packer = packer_for(world(nodes, running))

    assert packer.choose(wanted) is None
    assert short.scarcest(packer, wanted) == reason
