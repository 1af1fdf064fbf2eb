"""Where the volumes of a pod let it run: the situations of kube-scheduler's own tests of its filters, and ours."""

import itertools
from typing import Any

import pytest

from cluster.nodes import NODE_NAME_FIELD, meets_terms
from cluster.workloads import OWN_VOLUME, PodShape, Requirement
from controller.api.structs import Volume, object_from
from controller.snapshot.nodes import MOST_ALTERNATIVES, NOWHERE, either, joined
from controller.snapshot.volumes import NO_LIMIT, NO_NEEDS, VolumeIndex, VolumeNeeds
from tests.builders.storage import bound, claim, csi_node, index_of, storage_class, uses, volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
HOST = "kubernetes.io/hostname"
CSI = {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}


def needs(index: VolumeIndex, *claims: str, **more: Any) -> VolumeNeeds:
    return index.needs("default", "pod", uses(*(claims or ("data",))), **more)


def allows(found: VolumeNeeds, **labels: str) -> bool:
    """Whether the pod may start on a node with these labels (zone, region, host or other)."""
    names = {"zone": ZONE, "region": REGION, "old_zone": OLD_ZONE, "old_region": OLD_REGION, "host": HOST}
    node = {names.get(key, key): value for key, value in labels.items()}
    return found.problem is None and meets_terms(node, PodShape(node_terms=found.terms))


def code(found: VolumeNeeds) -> str | None:
    return None if found.problem is None else found.problem.code


# Claims that are bound.


def test_a_pod_without_claims_needs_nothing_of_its_node() -> None:
    token = object_from({"name": "kube-api-access"}, Volume)
    assert VolumeIndex().needs("default", "pod", (token,)) is NO_NEEDS


def test_a_pod_runs_where_its_volume_is() -> None:
    found = needs(index_of(bound(), volume(nodes={ZONE: ["b"]}, phase="Bound")))
    assert allows(found, zone="b")
    assert not allows(found, zone="a")
    assert not allows(found)


def test_a_volume_with_several_alternatives_is_used_in_each() -> None:
    ways = [{ZONE: ["a"], "rack": ["1", "2"]}, {"san": ["yes"]}]
    found = needs(index_of(bound(), volume(nodes=ways, phase="Bound")))
    assert allows(found, zone="a", rack="2")
    assert allows(found, san="yes")
    assert not allows(found, zone="a")


def test_an_affinity_of_no_alternative_allows_no_node() -> None:
    assert not allows(needs(index_of(bound(), volume(nodes=[], phase="Bound"))), zone="a")


def test_fields_of_nodes_in_a_volumes_affinity_are_not_looked_at() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    assert allows(needs(index_of(bound(), volume(nodeAffinity=affinity, phase="Bound"))), host="y")


def test_a_pod_runs_where_all_its_volumes_are() -> None:
    index = index_of(
        bound("one", on="pv-1"),
        bound("two", on="pv-2"),
        volume("pv-1", nodes={ZONE: ["a", "b"]}, phase="Bound"),
        volume("pv-2", nodes=[{ZONE: ["b"]}, {ZONE: ["c"]}], phase="Bound"),
    )
    found = needs(index, "one", "two")
    assert [zone for zone in "abc" if allows(found, zone=zone)] == ["b"]


@pytest.mark.parametrize(
    ("put", "expected"),
    [
        ([], "ClaimMissing"),
        ([bound()], "VolumeMissing"),
        ([claim(on="pv"), volume()], "ClaimNotBound"),
        ([claim(on="pv", phase="Lost"), volume()], "ClaimLost"),
        ([bound(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), volume(phase="Bound")], "ClaimDeleted"),
        ([claim()], "ClaimNotBound"),  # no class at all
        ([claim(storageClassName="gone")], "StorageClassMissing"),
        ([claim(storageClassName="fast"), storage_class("fast", waits=False, provisioner="x")], "ClaimNotBound"),
        ([claim(storageClassName="local"), storage_class()], "NoVolumeFits"),
    ],
)
def test_a_pod_waits_with_the_reason_of_its_claim(put: list[Any], expected: str) -> None:
    problem = needs(index_of(*put)).problem
    assert problem is not None
    assert problem.code == expected
    assert problem.words.startswith("spec.volumes[0].persistentVolumeClaim.claimName: ")
    assert "default/data" in problem.words


def test_one_of_several_claims_that_is_missing_holds_the_pod_back() -> None:
    found = needs(index_of(bound(), volume(phase="Bound")), "data", "more")
    assert found.problem is not None
    assert found.problem.words.startswith("spec.volumes[1].")


def test_a_claim_of_another_namespace_is_not_the_pods() -> None:
    index = index_of(bound(metadata={"namespace": "other"}), volume(phase="Bound"))
    assert code(needs(index)) == "ClaimMissing"


# Zones by label, as VolumeZone has them.


@pytest.mark.parametrize(
    ("labels", "node", "expected"),
    [
        ({OLD_ZONE: "a"}, {}, True),
        ({OLD_ZONE: "a"}, {"old_zone": "a"}, True),
        ({OLD_ZONE: "a"}, {"old_zone": "b"}, False),
        ({OLD_REGION: "r", "other": "x"}, {"old_region": "r"}, True),
        ({OLD_REGION: "r"}, {"old_region": "q"}, False),
        ({ZONE: "a"}, {"zone": "a", "other": "x"}, True),
        ({ZONE: "a"}, {"zone": "b"}, False),
        ({REGION: "r"}, {"region": "q"}, False),
        ({ZONE: "a", REGION: "r"}, {"zone": "a"}, False),
        ({ZONE: "a"}, {"old_zone": "a"}, False),
        ({OLD_ZONE: "a"}, {"zone": "a"}, True),
        ({OLD_ZONE: "a"}, {"zone": "b"}, False),
        ({OLD_ZONE: "a"}, {"old_zone": "b", "zone": "a"}, False),
        ({ZONE: "c__a"}, {"zone": "a"}, True),
        ({ZONE: "c__a"}, {"zone": "b"}, False),
        ({ZONE: "a"}, {"other": "x"}, True),
        ({ZONE: "a__"}, {"zone": "b"}, True),
    ],
)
def test_a_volumes_zone_labels_keep_its_pod_in_the_zone(labels: Any, node: Any, expected: bool) -> None:
    assert allows(needs(index_of(bound(), volume(labels=labels, phase="Bound"))), **node) is expected


def test_labels_of_all_volumes_hold_together() -> None:
    index = index_of(
        bound("one", on="pv-1"),
        bound("two", on="pv-2"),
        volume("pv-1", labels={ZONE: "a__b"}, phase="Bound"),
        volume("pv-2", labels={ZONE: "b__c", OLD_REGION: "r"}, phase="Bound"),
    )
    found = needs(index, "one", "two")
    assert allows(found, zone="b", region="r")
    assert allows(found, zone="b", old_region="r")
    assert allows(found)
    assert not allows(found, zone="a", region="r")
    assert not allows(found, zone="b")


# Claims that wait for a node.


def local(name: str, host: str, **more: Any) -> Any:
    return volume(name, nodes={HOST: [host]}, storageClassName="local", **more)


def waiting(name: str = "data", **more: Any) -> Any:
    return claim(name, storageClassName="local", **more)


def test_a_claim_that_waits_goes_where_a_volume_is_available() -> None:
    found = needs(index_of(waiting(), storage_class(), local("a", "x"), local("b", "y")))
    assert [host for host in "xyz" if allows(found, host=host)] == ["x", "y"]


@pytest.mark.parametrize(
    "put",
    [
        local("a", "x", size="9Gi"),
        local("a", "x", volumeMode="Block"),
        local("a", "x", accessModes=["ReadOnlyMany"]),
        local("a", "x", phase="Released"),
        local("a", "x", claimRef={"namespace": "default", "name": "other"}),
        local("a", "x", claimRef={"namespace": "default", "name": "data", "uid": "of-one-before"}),
        local("a", "x", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        volume("a", storageClassName="other"),
    ],
)
def test_a_volume_that_does_not_fit_the_claim_does_not_serve_it(put: Any) -> None:
    assert code(needs(index_of(waiting(), storage_class(), put))) == "NoVolumeFits"


def test_a_claims_selector_chooses_volumes_by_label() -> None:
    want = {"matchLabels": {"kind": "nvme"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}
    index = index_of(
        waiting(selector=want),
        storage_class(),
        local("a", "x", labels={"kind": "nvme"}),
        local("b", "y", labels={"kind": "nvme", "old": "yes"}),
        local("c", "z"),
    )
    assert [host for host in "xyz" if allows(needs(index), host=host)] == ["x"]


def test_a_volume_that_names_the_claim_is_taken_before_all_others() -> None:
    mine = {"namespace": "default", "name": "data"}
    found = needs(index_of(waiting(), storage_class(), local("a", "x"), local("b", "y", claimRef=mine)))
    assert [host for host in "xy" if allows(found, host=host)] == ["y"]
    assert (found.claims, found.volumes) == ((), ())


def test_a_class_with_a_provisioner_makes_volumes_on_its_topologies() -> None:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    made = storage_class(provisioner="x.example", allowedTopologies=topologies)
    found = needs(index_of(waiting(), made, local("pv", "far")))
    assert allows(found, zone="b")
    assert allows(found, zone="c", host="far")
    assert not allows(found, zone="c")
    assert allows(needs(index_of(waiting(), storage_class(provisioner="x.example"))))


def test_a_claim_being_made_for_a_node_stays_with_it() -> None:
    chosen = waiting(annotations={"volume.kubernetes.io/selected-node": "n1"})
    made = index_of(chosen, storage_class(provisioner="x.example"))
    assert needs(made).terms == ((Requirement(NODE_NAME_FIELD, "In", ("n1",)),),)
    assert code(needs(index_of(chosen, storage_class(), local("a", "x")))) == "NoVolumeFits"


def test_a_pod_that_tonnage_binds_waits_until_its_claims_are_bound() -> None:
    index = index_of(waiting(), storage_class(), local("a", "x"))
    assert code(needs(index, binds=True)) == "ClaimNotBound"
    index.put_claim("default/data", bound(on="a"))
    assert needs(index, binds=True).problem is None


def test_a_claim_that_kubernetes_has_not_seen_yet_is_read_as_it_will_be_bound() -> None:
    made = storage_class("made", waits=False, provisioner="x.example", annotations={
        "storageclass.kubernetes.io/is-default-class": "true"})  # fmt: skip
    fresh = claim(phase="")
    assert needs(index_of(fresh, made), binds=True).problem is None
    assert needs(index_of(made, fresh)).problem is None
    assert code(needs(index_of(claim(phase="", storageClassName="gone"), made))) == "StorageClassMissing"
    assert allows(needs(index_of(claim(phase="", on="pv"), volume(phase="", nodes={ZONE: ["b"]}))), zone="b")


def test_an_ephemeral_volume_has_a_claim_of_the_pods_own() -> None:
    volumes = (object_from({"name": "scratch", "ephemeral": {}}, Volume),)
    owner = {"kind": "Pod", "name": "pod", "uid": "1", "controller": True}
    index = VolumeIndex()
    assert code(index.needs("default", "pod", volumes)) == "ClaimMissing"
    index.put_claim("default/pod-scratch", bound("pod-scratch"))
    index.put_volume("pv", volume(nodes={ZONE: ["a"]}, phase="Bound"))
    assert code(index.needs("default", "pod", volumes)) == "ClaimNotOwned"
    index.put_claim("default/pod-scratch", bound("pod-scratch", metadata={"ownerReferences": [owner]}))
    assert allows(index.needs("default", "pod", volumes, uid="1"), zone="a")
    assert code(index.needs("default", "pod", volumes, uid="2")) == "ClaimNotOwned"


# What pods share.


def test_a_claim_of_one_pod_at_a_time_is_named_by_all_that_use_it() -> None:
    index = index_of(bound(accessModes=["ReadWriteOncePod"]), volume(phase="Bound"))
    assert needs(index).claims == ("default/data",)


def test_one_volume_that_several_claims_wait_for_is_for_one_of_them() -> None:
    index = index_of(waiting("one"), waiting("two"), storage_class(), local("a", "x"))
    (turn,) = needs(index, "one").claims
    assert needs(index, "two").claims == (turn,)
    index.put_volume("b", local("b", "x"))
    assert needs(index, "one").claims == ()


def test_of_more_claims_than_volumes_no_more_than_volumes_start_at_once() -> None:
    put = [waiting(name) for name in ("one", "two", "three", "four", "five")]
    index = index_of(
        *put, storage_class(), volume("a", storageClassName="local"), volume("b", storageClassName="local")
    )
    turns = [needs(index, each.metadata.name).claims for each in put]
    assert len(set(turns)) == 2
    assert all(len(turn) == 1 for turn in turns)


def limits_of(index: VolumeIndex, *hosts: str) -> dict[str, list[int]]:
    found = index.limits(hosts, tuple({HOST: host} for host in hosts))
    return {driver: most.tolist() for driver, most in found.items()}


def fit_together(index: VolumeIndex, host: str, *claims: str) -> bool:
    """Whether pods with these claims, one each, may start on a node in one plan."""
    most = {driver: limits[0] for driver, limits in limits_of(index, host).items()}
    used = [each for name in claims for each in needs(index, name).volumes]
    turns = [turn for name in claims for turn in needs(index, name).claims]
    return all(sum(d == driver for d, _ in used) <= most[driver] for driver, _ in used) and len(turns) == len(
        set(turns)
    )


def test_a_larger_claim_leaves_no_volume_for_a_smaller_one_where_there_are_too_few() -> None:
    index = index_of(
        waiting("small", size="1Gi"), waiting("mid", size="4Gi"), waiting("large", size="20Gi"), storage_class(),
        local("a", "x", size="5Gi"), local("b", "x", size="50Gi"), local("c", "y"), local("d", "y"), local("e", "y"),
    )  # fmt: skip
    assert fit_together(index, "x", "small", "large")
    assert fit_together(index, "x", "small", "mid")
    assert not fit_together(index, "x", "small", "mid", "large")  # the first two take both volumes


def test_claims_of_unlike_kinds_need_as_many_volumes_as_they_are() -> None:
    index = index_of(
        waiting("any", size="20Gi"), waiting("fast", selector={"matchLabels": {"kind": "nvme"}}), storage_class(),
        local("a", "x", size="50Gi", labels={"kind": "nvme"}), local("b", "y", labels={"kind": "nvme"}),
        local("c", "z", size="50Gi"),
    )  # fmt: skip
    assert not fit_together(index, "x", "any", "fast"), "both could have the one volume there"
    assert fit_together(index, "x", "any")
    assert fit_together(index, "x", "fast")
    assert fit_together(index, "y", "fast"), "what others cannot have there holds no claim back"


def test_pods_that_share_a_claim_share_the_only_volume_for_it() -> None:
    index = index_of(waiting(), storage_class(), local("a", "x"))
    assert needs(index).claims == ()


def test_a_node_serves_as_many_waiting_claims_as_it_has_volumes() -> None:
    index = index_of(waiting("one"), waiting("two"), storage_class(), local("a", "x"), local("b", "x"), local("c", "y"))
    ((driver, handle),) = needs(index, "one").volumes
    assert needs(index, "two").volumes == ((driver, "default/two"),)
    assert handle == "default/one"
    assert limits_of(index, "x", "y", "z")[driver] == [2, 1, 0]


def test_two_claims_of_one_pod_need_two_volumes() -> None:
    index = index_of(waiting("one"), waiting("two"), storage_class(), local("a", "x"))
    assert len(needs(index, "one", "two").volumes) == 2  # and its node has one: see the limits


# Limits of drivers.


def test_a_drivers_volumes_count_where_it_has_a_limit_somewhere() -> None:
    index = index_of(bound(), volume(phase="Bound", csi=CSI))
    assert needs(index).volumes == ()
    index.put_csi_node("n1", csi_node("n1", ebs=25))
    index.put_csi_node("n2", csi_node("n2", ebs=None))
    assert needs(index).volumes == (("ebs.csi.aws.com", OWN_VOLUME),)
    limits = index.limits(("n1", "n2", "n3"), ({}, {}, {}))
    assert limits["ebs.csi.aws.com"].tolist() == [25, NO_LIMIT, NO_LIMIT]
    index.put_csi_node("n1", None)
    assert needs(index).volumes == ()
    assert index.limits(("n1",), ({},)) == {}


def test_volumes_that_nodes_share_are_told_apart_and_others_only_counted() -> None:
    index = index_of(
        bound("one", on="pv-1"),
        bound("two", on="pv-2"),
        bound("all", on="pv-3", accessModes=["ReadWriteMany"]),
        *(volume(f"pv-{n}", phase="Bound", csi={**CSI, "volumeHandle": f"vol-{n}"}) for n in (1, 2, 3)),
        csi_node("n1", ebs=5),
    )
    own, shared = ("ebs.csi.aws.com", OWN_VOLUME), ("ebs.csi.aws.com", "vol-3")
    assert needs(index, "one").volumes == needs(index, "two").volumes == (own,)
    assert needs(index, "one", "two", "all").volumes == (own, own, shared)


def test_two_uses_of_a_volume_count_once() -> None:
    index = index_of(bound(), volume(phase="Bound", csi=CSI), csi_node("n1", ebs=1))
    assert len(needs(index, "data", "data").volumes) == 1


@pytest.mark.parametrize(
    "put",
    [
        [bound(), volume(phase="Bound", awsElasticBlockStore={"volumeID": "vol-1"})],
        [claim(storageClassName="c"), storage_class("c", provisioner="kubernetes.io/aws-ebs")],
        [claim(storageClassName="c"), storage_class("c", provisioner="ebs.csi.aws.com")],
    ],
)
def test_volumes_to_be_made_and_those_of_migrated_drivers_count_too(put: list[Any]) -> None:
    ((driver, handle),) = needs(index_of(csi_node("n1", ebs=1), *put)).volumes
    assert driver == "ebs.csi.aws.com"
    assert handle in (OWN_VOLUME, "default/data")


def test_a_running_pod_holds_its_volumes_whatever_became_of_its_claim() -> None:
    ended = bound(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, accessModes=["ReadWriteOncePod"])
    found = needs(index_of(ended, volume(phase="Bound", csi=CSI), csi_node("n1", ebs=1)))
    assert found.claims == ("default/data",)
    assert found.volumes == (("ebs.csi.aws.com", OWN_VOLUME),)


@pytest.mark.parametrize("kind", ["gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi", "azureDisk", "cinder"])
def test_a_disk_that_is_written_into_the_pod_is_said_not_to_be_understood(kind: str) -> None:
    found = VolumeIndex().needs("default", "pod", (object_from({"name": "d", kind: {}}, Volume),))
    assert found.problem is not None
    assert found.problem.code == "NotUnderstood"
    assert found.problem.words.startswith(f"spec.volumes[0].{kind}: ")


# Changes.


def test_each_change_is_seen_and_raises_the_version() -> None:
    index, seen = VolumeIndex(), []

    def note() -> None:
        seen.append((index.version, code(needs(index))))

    index.put_claim("default/data", waiting())
    note()
    index.put_storage_class("local", storage_class())
    note()
    index.put_volume("a", local("a", "x"))
    note()
    index.put_volume("a", local("a", "x", claimRef={"namespace": "default", "name": "other"}))
    note()
    index.put_volume("a", None)
    index.put_storage_class("local", None)
    note()
    index.put_claim("default/data", None)
    note()
    codes = ["StorageClassMissing", "NoVolumeFits", None, "NoVolumeFits", "StorageClassMissing", "ClaimMissing"]
    assert [each for _, each in seen] == codes
    assert all(before < after for (before, _), (after, _) in itertools.pairwise(seen))


def test_an_index_is_the_same_whatever_came_first() -> None:
    objects = [waiting("data"), waiting("two", size="1Gi"), storage_class(), local("a", "x"), csi_node("n1", ebs=1)]
    found = {repr(needs(index_of(*order), "data", "two")) for order in itertools.permutations(objects)}
    assert len(found) == 1


# Alternatives of requirements.


def has(key: str, *values: str) -> Requirement:
    return Requirement(key, "In", values)


def test_alternatives_of_both_are_joined_and_impossible_ones_left_out() -> None:
    assert joined((), ((has("a", "1"),),)) == ((has("a", "1"),),)
    assert joined(((has("a", "1", "2"),),), ((has("a", "2", "3"), has("b", "1")),)) == ((has("a", "2"), has("b", "1")),)
    assert joined(((has("a", "1"),),), ((has("a", "2"),),)) == NOWHERE
    assert joined(((has("a", "1"),),), ((Requirement("a", "DoesNotExist"),),)) == NOWHERE


def test_more_alternatives_than_are_looked_up_are_not_made() -> None:
    many = tuple((has("a", str(n)),) for n in range(200))
    assert joined(many, many) is None
    assert len(many) * 400 * 2 > MOST_ALTERNATIVES


def test_values_of_one_label_become_one_list() -> None:
    assert either([((has("h", "x"),),), ((has("h", "y"),),), ((has("a", "1"), has("b", "2")),)]) == (
        (has("h", "x", "y"),),
        (has("a", "1"), has("b", "2")),
    )
    assert either([((has("h", "x"),),), ()]) == ()
    assert either([]) == NOWHERE
