"""Neighbours: what other detectors say of a node or of its devices is evidence of the node, while they say it."""

from typing import Any

import msgspec
import pytest

from controller.api.health_policy import Detector, HealthPolicySpec
from controller.api.structs import Node
from controller.dra.objects import ResourceSlice
from controller.loops.health.situation import evidence_of, tainted_devices
from health.remediation.facts import NodeKey, Origin

SPEC = HealthPolicySpec(detectors=(Detector(name="dra-driver", taint="gpu.example.com/unhealthy"),))


def node(**fields: Any) -> Node:
    return msgspec.json.decode(
        msgspec.json.encode({"metadata": {"name": "n1", "uid": "key-n1"}, "spec": {}, "status": {}, **fields}),
        type=Node,
    )


def slice_of(node_name: str, *keys: str) -> ResourceSlice:
    devices = [{"name": "gpu-0"}, {"name": "gpu-3", "taints": [{"key": key, "effect": "NoSchedule"} for key in keys]}]
    spec = {"driver": "gpu.example.com", "pool": {"name": "n1"}, "nodeName": node_name, "devices": devices}
    return msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "s"}, "spec": spec}), type=ResourceSlice)


def test_a_device_that_its_dra_driver_has_tainted_is_evidence_where_a_policy_names_the_taint() -> None:
    tainted = tainted_devices([slice_of("n1", "gpu.example.com/unhealthy"), slice_of("n2", "other/key")])

    (found,) = evidence_of(node(), SPEC, 7.0, tainted["n1"])

    assert (found.nodes, found.source) == ((NodeKey("n1", "key-n1"),), Origin.NEIGHBOUR)
    assert found.shown == ("dra-driver: gpu.example.com/unhealthy on gpu.example.com/gpu-3",)
    assert not list(evidence_of(node(), SPEC, 7.0, tainted["n2"]))
    assert not list(evidence_of(node(), HealthPolicySpec(), 7.0, tainted["n1"]))


@pytest.mark.parametrize("status", ["True", "False"])
def test_a_condition_of_node_problem_detector_is_evidence_while_it_is_true(status: str) -> None:
    shown = node(status={"conditions": [{"type": "KernelDeadlock", "status": status}]})

    assert [each.shown for each in evidence_of(shown, HealthPolicySpec(), 7.0)] == (
        [("node-problem-detector: KernelDeadlock",)] if status == "True" else []
    )


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("CperHardwareErrorFatal", ["node-problem-detector: CperHardwareErrorFatal"]),
        ("SysLogsXIDError", ["nvsentinel: SysLogsXIDError"]),
        ("NCCLLoopbackTest", ["nvsentinel: NCCLLoopbackTest"]),
        ("NCCLAllReduceTest", []),  # of a gang
        ("GpuDcgmConnectivityFailure", []),  # of the monitor
    ],
)
def test_fatal_checks_of_nvsentinel_about_a_node_are_evidence(condition: str, said: list[str]) -> None:
    shown = node(status={"conditions": [{"type": condition, "status": "True"}]})

    assert [each for found in evidence_of(shown, HealthPolicySpec(), 7.0) for each in found.shown] == said


def test_a_taint_of_the_node_that_a_policy_names_is_evidence() -> None:
    shown = node(spec={"taints": [{"key": "gpu.example.com/unhealthy", "effect": "NoSchedule"}]})

    (found,) = evidence_of(shown, SPEC, 7.0)

    assert found.shown == ("dra-driver: gpu.example.com/unhealthy",)
