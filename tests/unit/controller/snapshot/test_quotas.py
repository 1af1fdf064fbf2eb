"""Quotas of thousandths of GPUs: what counts, in which order, and which namespaces they concern."""

import msgspec
import pytest

from cluster.workloads import Gang
from controller.kube_world.cached_view import ResourceQuota, most_gpu_milli
from controller.snapshot.namespace_bounds import within_quotas
from tests.builders.fleet import node, pod, world

NODE = node("a", gpus=8)


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
    ("hard", "most"),
    [({"tonnage.dev/gpu-milli": "4k"}, 4000), ({"tonnage.dev/gpu-milli": "9E"}, 10**12), ({"pods": "3"}, None)],
)
def test_the_quota_is_read_from_resource_quotas_by_its_name(hard: dict[str, str], most: int | None) -> None:
    quotas = [
        msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": {"hard": each}}, ResourceQuota)
        for name, each in (("a", hard), ("b", {"tonnage.dev/gpu-milli": "2E"} if most else {}))
    ]

    assert most_gpu_milli(quotas).get("ns") == most
