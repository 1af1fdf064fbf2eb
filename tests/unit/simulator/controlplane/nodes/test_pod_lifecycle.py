"""Lifecycle of a pod on a simulated kubelet."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from cluster.nodes import NodeTaint
from controller.snapshot.pod_rules import host_ports
from simulator.controlplane.nodes.pod_lifecycle import (
    AnnotationError,
    KubeletPod,
    Life,
    demand,
    ended,
    is_restarted,
    life_of,
    misfit,
    refusal,
    running,
)

AT = "2026-01-01T00:00:00.000000Z"
GPU = "nvidia.com/gpu"


def pod(**spec: Any) -> KubeletPod:
    raw = {
        "metadata": {"name": "a", "namespace": "team", "uid": "1-2", "resourceVersion": "7"},
        "spec": {"containers": [{"name": "main"}], "nodeName": "node-1", **spec},
    }
    return msgspec.convert(raw, KubeletPod)


def asking(name: str, **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


def test_containers_add_up_and_an_init_container_counts_where_it_needs_more() -> None:
    both = [asking("a", cpu="500m", memory="1Gi"), asking("b", cpu="1")]
    asked = demand(pod(containers=both, initContainers=[asking("init", cpu="1", memory="2Gi")]))

    # cpu: 0.5 + 1 = 1.5 is more than the init container's 1; memory: its 2 GiB are more than 1.
    assert asked == {"pods": 1, "cpu": Decimal("1.5"), "memory": 2 * 2**30}


def test_a_pod_that_fits_is_admitted() -> None:
    assert refusal({"cpu": Decimal(2)}, {"cpu": Decimal(2)}) is None


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [("cpu", "OutOfcpu"), ("memory", "OutOfmemory"), ("pods", "OutOfpods"), (GPU, "UnexpectedAdmissionError")],
)
def test_a_pod_beyond_the_free_resources_is_refused_as_by_a_kubelet(lacks: str, reason: str) -> None:
    free = {name: Decimal(4) for name in ("cpu", "memory", "pods", GPU)}

    refused = refusal(dict.fromkeys(free, Decimal(1)), free | {lacks: Decimal(0)})

    assert refused is not None
    assert refused[0] == reason


def test_annotations_say_how_a_pod_lives() -> None:
    told = {"simulated.tonnage.dev/run-seconds": "2.5", "simulated.tonnage.dev/exit-code": "3", "other": "x"}

    assert life_of(told) == Life(run_s=2.5, exit_code=3)


def test_an_annotation_that_is_no_number_is_named() -> None:
    with pytest.raises(AnnotationError, match="'soon'"):
        life_of({"simulated.tonnage.dev/start-seconds": "soon"})


@pytest.mark.parametrize(
    ("policy", "exit_code", "restarted"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_containers_restart_according_to_the_restart_policy(policy: str, exit_code: int, *, restarted: bool) -> None:
    assert is_restarted(pod(restartPolicy=policy), Life(run_s=1, exit_code=exit_code)) is restarted


def test_a_running_pod_is_ready_with_each_container() -> None:
    patch = running(pod(containers=[asking("a"), asking("b")]), "10.128.0.1", AT)

    assert patch["metadata"] == {"uid": "1-2"}
    assert {c["type"]: c["status"] for c in patch["status"]["conditions"]}["Ready"] == "True"
    assert [c["name"] for c in patch["status"]["containerStatuses"]] == ["a", "b"]


@pytest.mark.parametrize(("exit_code", "phase"), [(0, "Succeeded"), (137, "Failed")])
def test_the_exit_code_decides_the_phase(exit_code: int, phase: str) -> None:
    assert ended(pod(), exit_code, AT)["status"]["phase"] == phase


def test_sidecars_and_overhead_are_held_as_well() -> None:
    sidecar = {**asking("side", cpu="500m"), "restartPolicy": "Always"}
    asked = demand(pod(containers=[asking("a", cpu="1")], initContainers=[sidecar], overhead={"cpu": "250m"}))

    assert asked["cpu"] == Decimal("1.75")


def listening(address: str = "") -> dict[str, Any]:
    port = {"containerPort": 80, "hostPort": 80, "hostIP": address}
    return {"containers": [{"name": "main", "ports": [port]}]}


GONE = NodeTaint("gone", effect="NoExecute")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, "TaintToleration"),
        ({"tolerations": [{"key": "gone", "operator": "Exists"}]}, ""),
        ({"tolerations": [{"operator": "Exists"}]}, ""),
        ({"tolerations": [{"key": "gone", "value": "x"}]}, "TaintToleration"),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"disk": "ssd"}}, ""),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"disk": "hdd"}}, "NodeAffinity"),
        ({"tolerations": [{"operator": "Exists"}], **listening()}, "NodePorts"),
        ({"tolerations": [{"operator": "Exists"}], **listening("10.0.0.1")}, "NodePorts"),
        ({"tolerations": [{"operator": "Exists"}], **listening("10.0.0.2")}, ""),
    ],
)
def test_a_pod_that_its_node_does_not_suit_is_refused_as_by_a_kubelet(spec: dict[str, Any], reason: str) -> None:
    there = list(host_ports(pod(**listening("10.0.0.1")).spec))

    no = misfit(pod(**spec), {"disk": "ssd"}, [GONE], there)

    assert (no[0] if no else "") == reason
