"""Pods without GPUs leave the nodes with GPUs to those that need them."""

from placement.engine.packer import Packer
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from tests.builders.fleet import node, shape, world


def test_a_pod_without_gpus_goes_to_a_node_without_gpus_while_it_fits_there() -> None:
    fleet = world([node("gpu", gpus=8, cpu_milli=8_000), node("cpu", cpu_milli=64_000)])
    asked = shape(cpu_milli=4_000)
    packer = Packer(fleet, policy_named("tonnage", Knowledge(fleet, expected=(shape(gpus=1), asked))))

    first = packer.choose(asked)

    assert first is not None
    assert fleet.nodes.names[first.node] == "cpu"


def test_it_takes_a_node_with_gpus_rather_than_none() -> None:
    fleet = world([node("gpu", gpus=8, cpu_milli=8_000), node("cpu", cpu_milli=2_000)])
    asked = shape(cpu_milli=4_000)
    packer = Packer(fleet, policy_named("tonnage", Knowledge(fleet, expected=(shape(gpus=1), asked))))

    only = packer.choose(asked)

    assert only is not None
    assert fleet.nodes.names[only.node] == "gpu"
