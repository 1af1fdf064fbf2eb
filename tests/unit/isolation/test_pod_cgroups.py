"""Where the kubelet puts a pod's cgroup, by both drivers."""

import pytest

from isolation.tree import container_group, is_below, is_uid, pod_groups

UID = "0f1e2d3c-aaaa-bbbb-cccc-1234567890ab"
ID = "4f" * 32


@pytest.mark.parametrize(
    "group",
    [
        f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice",
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice",
        f"kubepods/pod{UID}",
        f"kubepods/burstable/pod{UID}",
        f"kubepods/besteffort/pod{UID}",
    ],
)
def test_a_pod_is_looked_for_where_either_driver_puts_it(group: str) -> None:
    assert group in set(pod_groups(UID))


def test_a_kubelet_may_keep_its_groups_below_another() -> None:
    assert f"kubelet.slice/kubepods/pod{UID}" in set(pod_groups(UID, "kubelet.slice"))


@pytest.mark.parametrize("name", [f"cri-containerd-{ID}.scope", f"crio-{ID}.scope", ID])
def test_a_container_is_found_by_the_id_in_its_status(name: str) -> None:
    children = ("cri-containerd-" + "ab" * 32 + ".scope", name)

    assert container_group(f"containerd://{ID}", children) == name


@pytest.mark.parametrize("forged", ["", "..", "containerd://../../..", f"{ID}/../..", "containerd://", "x" * 200])
def test_an_id_that_is_none_finds_nothing(forged: str) -> None:
    assert container_group(forged, (forged, "..", ID)) is None


@pytest.mark.parametrize("forged", ["", "../x", "a/b", "A-B", "-a", "a" * 64])
def test_a_uid_that_could_lead_elsewhere_is_none(forged: str) -> None:
    assert is_uid(UID)
    assert not is_uid(forged)


def test_a_longer_name_is_not_below_a_shorter_one() -> None:
    assert is_below("a/b", "a/b")
    assert is_below("a/b/call-1", "a/b")
    assert not is_below("a/bc", "a/b")
    assert not is_below("a", "a/b")
