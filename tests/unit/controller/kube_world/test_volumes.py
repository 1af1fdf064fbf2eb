"""Claims, volumes and drivers of a live cluster decide where pods are planned."""

from typing import Any

from cluster.nodes import NODE_NAME_FIELD, eligible_nodes
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape, Requirement
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import having, node, pod
from tests.builders.storage import bound, claim, csi_node, storage_class, volume, written

ZONE = "topology.kubernetes.io/zone"
CSI = {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}


def using(name: str = "p", *claims: str, on: str = "") -> Any:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims or ("data",)]
    return pod(name, on=on, volumes=volumes)


def shape(seen: Snapshot, name: str = "default/p") -> PodShape:
    return seen.pods.shapes[int(seen.pods.shape[list(seen.pods.names).index(name)])]


def nodes_for(seen: Snapshot, name: str = "default/p") -> list[str]:
    allowed = eligible_nodes(shape(seen, name), seen.nodes, seen.gpu_type_names)
    return [each for each, may in zip(seen.nodes.names, allowed, strict=True) if may]


def zoned(zone: str) -> Any:
    made = node(f"n-{zone}")
    made["metadata"].setdefault("labels", {})[ZONE] = zone
    return made


def test_a_pod_is_planned_where_its_volume_is() -> None:
    live = LiveCluster([zoned("a"), zoned("b"), using()])
    seen = live.observer.observe()
    assert "default/p" not in seen.pods.names
    assert [(each.code, each.pod) for each in seen.left_out] == [("ClaimMissing", "default/p")]
    live.put(written(bound()), written(volume(nodes={ZONE: ["b"]}, phase="Bound")))
    seen = live.observer.observe()
    assert nodes_for(seen) == ["n-b"]
    assert not seen.left_out


def test_a_volume_that_goes_holds_its_pod_back_again() -> None:
    put = [written(bound()), written(volume(phase="Bound"))]
    live = LiveCluster([zoned("a"), using(), *put])
    assert nodes_for(live.observer.observe()) == ["n-a"]
    live.remove(put[1])
    assert [each.code for each in live.observer.observe().left_out] == ["VolumeMissing"]


def test_a_change_of_volumes_that_no_pod_uses_leaves_the_tables_as_they_are() -> None:
    live = LiveCluster([zoned("a"), using(), written(bound()), written(volume(phase="Bound"))])
    before = live.observer.observe()
    live.put(written(volume("another")), written(claim("another", storageClassName="x")))
    after = live.observer.observe()
    assert after.pods is before.pods
    assert after.nodes is before.nodes


def test_a_claim_being_made_for_a_node_pins_its_pod_by_the_nodes_name() -> None:
    made = storage_class("made", provisioner="x.example")
    chosen = claim(storageClassName="made", annotations={"volume.kubernetes.io/selected-node": "n-b"})
    live = LiveCluster([zoned("a"), zoned("b"), using(), written(made), written(chosen)])
    seen = live.observer.observe()
    assert shape(seen).node_terms == ((Requirement(NODE_NAME_FIELD, "In", ("n-b",)),),)
    assert nodes_for(seen) == ["n-b"]


def test_nodes_have_the_limits_of_their_drivers_and_pods_the_volumes_that_count() -> None:
    put = (written(bound()), written(volume(phase="Bound", csi=CSI)), written(csi_node("n-a", ebs=2)))
    live = LiveCluster([zoned("a"), zoned("b"), using(on="n-a"), *put])
    seen = live.observer.observe()
    assert shape(seen).beside.volumes == (("ebs.csi.aws.com", "vol-1"),)
    assert seen.nodes.volume_limits["ebs.csi.aws.com"][0] == 2


def test_a_running_pod_stays_in_the_plan_whatever_its_claim_says() -> None:
    live = LiveCluster([zoned("a"), using(on="n-a")])
    assert list(live.observer.observe().pods.names) == ["default/p"]


def test_a_pod_that_tonnage_binds_itself_waits_for_its_claims() -> None:
    local = volume("pv", nodes={ZONE: ["a"]}, storageClassName="local")
    put = (written(storage_class()), written(claim(storageClassName="local")), written(local))
    gated, bound_here = using("gated"), having(using("bound"), "spec.schedulerName", "tonnage")
    seen = LiveCluster([zoned("a"), gated, bound_here, *put]).observer.observe()
    assert list(seen.pods.names) == ["default/gated"]
    assert [(each.pod, each.code) for each in seen.left_out] == [("default/bound", "ClaimNotBound")]
