"""Which cgroup and which pod the text of /proc/<pid>/cgroup names, and which it does not."""

import pytest

from nodeagent.process_files import absolute, group_in, pod_in, visible_group_in

UID = "0a1b2c3d-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("group", "pod"),
    [
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-1.scope",
            UID,
        ),
        (f"/kubepods/besteffort/pod{UID}/abc", UID),
        (f"/../../kubepods-pod{UID.replace('-', '_')}.slice/x", UID),
        (f"/docker/1/kubelet.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice/cri", UID),
        ("/system.slice/sshd.service", ""),
        ("/", ""),
    ],
)
def test_a_cgroup_names_its_pod(group: str, pod: str) -> None:
    assert pod_in(group) == pod


def test_a_pod_cannot_name_another_by_a_group_inside_its_own() -> None:
    other = "99999999-1111-2222-3333-444455556666"

    assert pod_in(f"/kubepods/pod{UID}/kubepods/pod{other}") == UID


def test_the_unified_hierarchy_counts_or_else_that_of_memory() -> None:
    assert group_in("0::/a/b\n") == "/a/b"
    assert group_in("12:cpu,cpuacct:/c\n9:memory:/m\n0::/\n") == "/m"


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("0::/a/b\n", "a/b"),
        ("12:memory:/x\n0::/a\n", "a"),
        ("0::/../../elsewhere\n", None),
        ("0::/a (deleted)\n", None),
        ("4:memory:/x\n", None),
        ("", None),
    ],
)
def test_the_group_of_a_process_is_read_where_it_may_be_seen(text: str, group: str | None) -> None:
    assert visible_group_in(text) == group


def test_a_cgroup_seen_from_the_agents_own_is_found_from_the_root() -> None:
    assert absolute("/kubepods/pod1/c") == "kubepods/pod1/c"
    assert absolute("/../../a-b-pod1.slice/c.scope") == "a.slice/a-b.slice/a-b-pod1.slice/c.scope"
