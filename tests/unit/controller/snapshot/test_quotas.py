"""Quotas of thousandths of GPUs: what counts, in which order, and which namespaces they concern."""

from pathlib import Path

import msgspec
import pytest

from cluster.quotas import NamespaceQuota, QuotaAsk, QuotaScope
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.snapshot import namespace_bounds
from controller.snapshot.quotas import ResourceQuota, milli_quotas, quota_from
from tests.builders import manifests
from tests.builders.fleet import node, pod, world
from tests.builders.manifests import Object, gpu_type, having, observed, profile, service

NODE = node("a", gpus=8)
MILLI = "tonnage.dev/gpu-milli"


def within_quotas(snapshot: Snapshot, most: dict[str, int]) -> Snapshot:
    quotas = [NamespaceQuota(namespace, "q", {MILLI: milli}) for namespace, milli in most.items()]
    return namespace_bounds.within_quotas(snapshot, tuple(milli_quotas(snapshot, quotas)))


def quota(hard: Object, namespace: str = "default", **fields: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {"hard": hard},
        **fields,
    }


def read(written: Object) -> NamespaceQuota:
    return quota_from(msgspec.convert(written, ResourceQuota))


def test_what_runs_counts_whole_gpus_and_shares_alike() -> None:
    running = [
        pod("ns/whole", gpus=1, on="a", devices=(0,)),
        pod("ns/share", gpus=1, gpu_milli=250, on="a", devices=(1,)),
    ]
    waiting = [pod("ns/x", gpus=1, gpu_milli=750), pod("ns/y", gpus=1, gpu_milli=1), pod("ns/cpu-only")]

    left = within_quotas(world([NODE], [*running, *waiting]), {"ns": 2000})

    assert [each.pod for each in left.left_out] == ["ns/y"]
    assert "2000 are held or asked for before it" in left.left_out[0].words


def test_running_pods_past_a_quota_run_on_and_nothing_joins_them() -> None:
    pods = [pod("ns/a", gpus=4, on="a", devices=(0, 1, 2, 3)), pod("ns/b", gpus=1, gpu_milli=1)]

    left = within_quotas(world([NODE], pods), {"ns": 0})

    assert list(left.pods.names) == ["ns/a"]


def test_a_gang_counts_whole_and_one_that_does_not_fit_leaves_room_to_others() -> None:
    members = [pod(f"ns/g-{n}", gpus=1, gang="ns/g") for n in range(4)]
    snapshot = world([NODE], [*members, pod("ns/small", gpus=1, gpu_milli=500)], gangs=[Gang("ns/g", 4)])

    left = within_quotas(snapshot, {"ns": 3000})

    assert list(left.pods.names) == ["ns/small"]
    assert "with the 3 others of its gang 4000 thousandths" in left.left_out[0].words


def test_a_gang_of_absurd_size_is_counted_in_full() -> None:
    """Ten times 2^50 devices of 1000 thousandths are more than 64 bits hold: a sum that wraps would pass any quota."""
    members = [pod(f"ns/g-{n}", gpus=2**50, gang="ns/g") for n in range(10)]
    snapshot = world([NODE], [*members, pod("ns/x", gpus=3)], gangs=[Gang("ns/g", 10)])

    left = within_quotas(snapshot, {"ns": 2000})

    assert len(left.left_out) == 11


def test_without_a_quota_nothing_changes() -> None:
    snapshot = world([NODE], [pod("ns/a", gpus=1)])

    assert within_quotas(snapshot, {}) is snapshot
    assert within_quotas(snapshot, {"other": 0}) is snapshot


@pytest.mark.parametrize(
    ("resource", "written", "units"),
    [(MILLI, "4k", 4000), (MILLI, "9E", 2**50), ("limits.cpu", "1.5", 1500), ("requests.memory", "1Gi", 2**30)],
)
def test_amounts_of_a_quota_are_numbers(resource: str, written: str, units: int) -> None:
    assert read(quota({resource: written})).hard == {resource: units}


ASK = QuotaAsk({"pods": 1}, priority_class="high")


@pytest.mark.parametrize(
    ("scope", "is_in"),
    [
        (QuotaScope("NotTerminating"), True),
        (QuotaScope("BestEffort"), False),
        (QuotaScope("PriorityClass"), True),
        (QuotaScope("PriorityClass", "In", ("high", "low")), True),
        (QuotaScope("PriorityClass", "NotIn", ("high",)), False),
        (QuotaScope("PriorityClass", "DoesNotExist"), False),
        (QuotaScope("OfALaterRelease"), False),
    ],
)
def test_a_quota_counts_pods_in_its_scopes_alone(scope: QuotaScope, is_in: bool) -> None:
    quota = NamespaceQuota("ns", "q", {}, scopes=(QuotaScope("NotBestEffort"), scope))

    assert quota.covers(ASK) is is_in


def left_out(folder: Path, *objects: Object) -> list[tuple[str, str]]:
    seen = observed(folder, gpu_type(), manifests.node(), *objects).snapshot
    return [(each.pod, each.code) for each in seen.left_out]


def test_pods_of_files_past_a_quota_are_refused_as_admission_would(tmp_path: Path) -> None:
    waiting = [manifests.pod(name, 2) for name in ("a", "b", "c")]
    running = manifests.pod("runs", 2, on="n1")

    found = left_out(tmp_path, running, *waiting, quota({"requests.nvidia.com/gpu": "6"}))

    assert found == [("default/c", "QuotaExceeded")]


@pytest.mark.parametrize("hard", [{"pods": 1}, {"count/pods": "1"}, {"cpu": "1500m"}, {"limits.memory": "1Gi"}])
def test_quotas_of_pods_cpu_memory_and_limits_bound_files(tmp_path: Path, hard: Object) -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"memory": "700Mi"}}
    waiting = [having(manifests.pod(name), "spec.containers.0.resources", resources) for name in ("a", "b")]

    assert left_out(tmp_path, *waiting, quota(hard)) == [("default/b", "QuotaExceeded")]


def test_pods_of_a_dump_were_admitted_and_its_quota_says_what_they_use(tmp_path: Path) -> None:
    stored = having(manifests.pod("stored", 2), "metadata.uid", "1")
    asked = quota({"requests.nvidia.com/gpu": "3"}, status={"used": {"requests.nvidia.com/gpu": "2"}})

    found = left_out(tmp_path, stored, manifests.pod("new", 2), manifests.pod("slim", 1), asked)

    assert found == [("default/new", "QuotaExceeded")]


TEMPLATE: Object = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "1Gi"}}}]}}


def shares(folder: Path, *objects: Object, template: Object = TEMPLATE) -> dict[str, int]:
    """What the instances of the service may hold, by resource."""
    chat = service(template=template, instance={"cpu": "2"})
    (found,) = observed(folder, gpu_type(), profile(), manifests.node(), chat, *objects).snapshot.services
    return {each.name.partition(" ")[0]: each.most // each.units_of("a100", 1) for each in found.quotas}


def test_a_service_may_hold_what_other_pods_leave_of_its_quota(tmp_path: Path) -> None:
    """8 devices less 2; 10 cores less 1, at 2 an instance; 4 GiB at 1; 9 pods less 1."""
    hard = {"requests.nvidia.com/gpu": "8", "requests.cpu": "10", "limits.memory": "4Gi", "pods": "9", MILLI: "5000"}
    other = having(manifests.pod("other", 2, on="n1"), "spec.containers.0.resources.requests.cpu", "1")

    assert shares(tmp_path, other, quota({**hard, "persistentvolumeclaims": "0"}), quota({"pods": 0}, "elsewhere")) == {
        "requests.nvidia.com/gpu": 6,
        "requests.cpu": 4,
        "limits.memory": 4,
        "pods": 8,
        MILLI: 3,
    }


def test_its_own_instances_do_not_count_against_a_service(tmp_path: Path) -> None:
    own = manifests.pod("i", 1, on="n1", labels={"tonnage.dev/service": "chat"},
                        annotations={"tonnage.dev/gpu-types": "a100"})  # fmt: skip
    used = {"used": {"requests.nvidia.com/gpu": "3"}}

    assert shares(tmp_path, own, quota({"requests.nvidia.com/gpu": "4"}, status=used)) == {"requests.nvidia.com/gpu": 2}


def test_a_service_whose_instances_others_run_is_not_bound(tmp_path: Path) -> None:
    (found,) = observed(tmp_path, gpu_type(), profile(), service(), quota({"pods": "0"})).snapshot.services

    assert found.quotas == ()


def test_a_scope_that_is_not_understood_is_said(tmp_path: Path) -> None:
    odd = having(quota({"pods": "0"}), "spec.scopes", ["OfALaterRelease"])

    seen = observed(tmp_path, gpu_type(), manifests.node(), manifests.pod("p"), odd)

    assert (seen.snapshot.left_out, [note.reason.code for note in seen.notes]) == ((), ["ScopeNotHeeded"])


@pytest.mark.parametrize(
    ("share", "borrowing", "left"),
    [
        # 8 devices less the 2 of another pod; at 4 $ an hour: 30 less 8 dollars.
        ({"gpus": {"a100": 5}}, {"gpus": {"a100": 3}}, {"a100": 6}),
        ({"dollarsPerHour": 20}, {"dollarsPerHour": 10}, {"cents": 5}),
        ({"gpus": {"a100": 5}}, {}, {}),
    ],
)
def test_a_service_may_hold_what_other_pods_leave_of_the_limit_of_its_team(
    tmp_path: Path, share: Object, borrowing: Object, left: dict[str, int]
) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "a"}}}
    spec = {"namespaces": {"team": "a"}, "share": share, "borrowing": borrowing}
    team = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Team", "metadata": {"name": "a"}, "spec": spec}
    own = manifests.pod("i", 1, on="n1", labels={"tonnage.dev/service": "chat"},
                        annotations={"tonnage.dev/gpu-types": "a100"})  # fmt: skip

    assert shares(tmp_path, space, team, own, manifests.pod("other", 2, on="n1")) == left
