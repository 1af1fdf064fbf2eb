"""Capability levels: what a node can enforce, and why not more."""

from pathlib import Path

import pytest

from isolation.cgroupfs import capability_of

ALL, LINUX = "cpu io memory pids", "Linux version 6.12.107 (x)"


@pytest.mark.parametrize(
    ("controllers", "kernel", "is_writable", "level", "why"),
    [
        (ALL, LINUX, True, "full", "cgroup v2"),
        (ALL, LINUX, False, "observe", "read-only"),
        ("memory", LINUX, True, "observe", "pids, cpu"),
        ("cpu pids", LINUX, True, "none", "memory controller"),
        (None, LINUX, True, "none", "no cgroups"),
        (ALL, "Linux version 4.4.0 gVisor", True, "none", "gVisor"),
        (ALL, "Linux version 5.13.0 (x)", True, "observe", "5.14"),
        (ALL, "Linux version 5.14.0 (x)", True, "full", "cgroup v2"),
        (ALL, "Linux version 7.2.7 (x)", True, "full", "cgroup v2"),
        (ALL, "?", True, "observe", "5.14"),
    ],
)
def test_the_level_follows_from_what_the_machine_offers(
    tmp_path: Path, controllers: str | None, kernel: str, level: str, why: str, *, is_writable: bool
) -> None:
    (tmp_path / "version").write_text(kernel)
    if controllers is not None:
        (tmp_path / "cgroup.controllers").write_text(controllers)

    capability = capability_of(tmp_path, tmp_path / "version", lambda _: is_writable)

    assert capability.level == level
    assert why in capability.reason


def test_a_folder_of_cgroup_v1_is_told_from_v2(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()

    capability = capability_of(tmp_path)

    assert capability.level == "none"
    assert capability.reason.startswith("cgroup v1: ")
