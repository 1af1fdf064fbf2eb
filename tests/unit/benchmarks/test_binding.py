"""The binding benchmark counts what objects say, and nothing that a scheduler says of itself."""

from typing import Any

import pytest

from benchmarks.tables import joined
from cluster.workloads import PodShape
from tests.builders.whole_gpu_pods import GPU, fitting, overload, pod_object
from tests.controlplane.packed import Packed, packed

GIB = 2**30


def node(name: str, gpus: int, cores: int = 96) -> dict[str, Any]:
    has = {GPU: str(gpus), "cpu": str(cores), "memory": "512Gi"}
    return {"metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "G2"}}, "status": {"allocatable": has}}


def pod(gpus: int, on: str, devices: str = "") -> dict[str, Any]:
    made = pod_object(0, PodShape(1000, GIB, gpus, 1000), "ns", "tonnage")
    made["spec"]["nodeName"] = on
    made["metadata"]["annotations"] = {"tonnage.dev/devices": devices} if devices else {}
    return made


def found(*pods: dict[str, Any]) -> Packed:
    return packed([node("a", 8), node("b", 8), node("c", 8, cores=32)], pods)


def test_an_empty_fleet_takes_one_large_pod_on_each_node_that_has_the_cpu_for_it() -> None:
    # 64 cores each: nodes a and b have them, c has not.
    assert found().next_large == 2


def test_one_pod_on_a_node_takes_the_place_of_a_large_one() -> None:
    one = found(pod(1, "a"))

    assert (one.next_large, one.gpus, one.gpus_asked, one.bound) == (1, 24, 1, 1)


def test_a_pending_pod_holds_nothing() -> None:
    assert found(pod(8, "")).gpus_asked == 0


@pytest.mark.parametrize(
    "pods", [[pod(8, "a"), pod(1, "a")], [pod(1, "a", "3"), pod(2, "a", "3,4")]], ids=["a node", "a device"]
)
def test_what_was_promised_twice_is_found(pods: list[dict[str, Any]]) -> None:
    assert found(*pods).over_committed
    assert not found(pods[0]).over_committed


def test_idle_gpus_without_cpu_are_stranded() -> None:
    hungry = pod(1, "c")
    hungry["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "32"

    # c has 7 idle GPUs and no core left: whatever comes, it cannot use them.
    assert found(hungry).stranded_gpus - found().stranded_gpus >= 1
    assert found(hungry).stranded_gpus >= 7


def test_the_same_seed_draws_the_same_pods() -> None:
    assert fitting(50, seed=1) == fitting(50, seed=1) != fitting(50, seed=2)


def test_pods_that_fit_ask_for_one_or_two_whole_gpus() -> None:
    assert {(shape.gpus, shape.gpu_milli) for shape in fitting(2000, seed=1).shapes} == {(1, 1000), (2, 1000)}


def test_an_overload_asks_for_just_more_than_its_share() -> None:
    asked = overload(1000, 1.1, seed=1).gpus

    assert 1100 <= asked < 1100 + 8


def test_the_table_shows_the_median_of_the_rounds() -> None:
    rounds = [{"contender": "tonnage", "binds_per_s": rate} for rate in (100.0, 900.0, 300.0)]

    assert joined(rounds, ("contender",), "median") == [{"contender": "tonnage", "binds_per_s": 300.0, "runs": 3}]
