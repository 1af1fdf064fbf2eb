"""Bounds on what one pod or service may write, so that no tenant makes the plans of the others dear."""

from typing import Any

import pytest

from cluster.snapshot import PENDING
from controller.objects.own_objects import by_object
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import gang, gpu_type, node, pod, profile, service

FLEET = (gpu_type(), node(), profile())


def constrained(**spec: Any) -> dict[str, Any]:
    made = pod("p")
    made["spec"] |= spec
    return made


def terms(count: int, of: int = 1) -> dict[str, Any]:
    """A required node affinity of so many terms, with this many requirements each."""
    each = {"matchExpressions": [{"key": f"k{n}", "operator": "Exists"} for n in range(of)]}
    required = {"nodeSelectorTerms": [each] * count}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


# 300 entries of a selector and 300 terms are 300 × (2 × 300 + 1) = 180,300, although the pod names 600.
SELECTOR = {f"s{n}": "v" for n in range(300)}
TOO_MUCH = {
    "affinity: has 513 requirements and values": {"affinity": terms(513)},
    "affinity: has 180300 requirements and values": {"affinity": terms(300), "nodeSelector": SELECTOR},
    "affinity: has 600 requirements and values": {"nodeSelector": SELECTOR},
    "tolerations: has 129 tolerations": {"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(129)]},
}


@pytest.mark.parametrize("says", TOO_MUCH)
def test_a_waiting_pod_with_too_many_constraints_is_refused(says: str) -> None:
    live = LiveCluster([*FLEET, constrained(**TOO_MUCH[says]), pod("other")])

    seen = live.observer.see()

    assert list(seen.snapshot.pods.names) == ["default/other"]
    assert [str(each) for each in seen.mistakes if each.place.startswith("Pod/default/p")] == [
        f"Pod/default/p, spec.{says}; write at most {128 if 'tolerations' in says else 512}"
    ]


@pytest.mark.parametrize("says", TOO_MUCH)
def test_a_running_pod_with_too_many_constraints_holds_what_it_holds_and_none_of_them_is_kept(says: str) -> None:
    live = LiveCluster([*FLEET, constrained(**TOO_MUCH[says], nodeName="n1")])

    seen = live.observer.see()

    (shape,) = seen.snapshot.pods.shapes
    assert seen.snapshot.pods.node.tolist() != [PENDING]
    assert (seen.mistakes, shape.node_terms, shape.tolerations) == ((), (), ())


@pytest.mark.parametrize("says", TOO_MUCH)
def test_a_service_with_too_many_constraints_is_refused(says: str) -> None:
    written = service()
    containers = [{"name": "server", "image": "example.com/none"}]
    written["spec"]["template"] = {"spec": {"containers": containers, **TOO_MUCH[says]}}
    live = LiveCluster([*FLEET, written])

    seen = live.observer.see()

    assert seen.snapshot.services == ()
    assert says in str(by_object(seen.mistakes)["ModelService/default/chat"][0])


@pytest.mark.parametrize("annotation", ["pod-group-name", "scheduling.k8s.io/group-name"])
def test_the_name_of_a_group_is_no_longer_than_names_are(annotation: str) -> None:
    """An annotation holds 250 kB, which every reason and Event about the group would repeat."""
    long, right = pod("long"), pod("right")
    long["metadata"]["annotations"] = {annotation: "x" * 250_000}
    right["metadata"]["annotations"] = {annotation: "x" * 253}

    seen = LiveCluster([*FLEET, long, right]).observer.see()

    assert [each.pod for each in seen.snapshot.left_out] == ["default/right"]
    (mistake,) = seen.mistakes
    assert len(str(mistake)) < 300
    assert "name a group with 250008 characters" in str(mistake)


def test_no_mistake_repeats_all_of_a_long_annotation() -> None:
    long = pod("long")
    long["metadata"]["annotations"] = {"tonnage.dev/movable": "x" * 250_000}

    (mistake,) = LiveCluster([*FLEET, long]).observer.see().mistakes

    assert len(str(mistake)) < 300


def test_devices_that_no_node_has_are_counted_so_that_sums_of_them_fit() -> None:
    """2^50 devices of 1000 thousandths each, nine times, are more than 64 bits hold."""
    many = [pod(f"p{n}", gpus=2**50) for n in range(9)]

    pods = LiveCluster([*FLEET, *many, gang("train", members=9)]).observer.observe().pods

    assert {shape.gpus for shape in pods.shapes} == {1_000_000}
    assert all(shape.cpu_milli <= 2**50 for shape in pods.shapes)
