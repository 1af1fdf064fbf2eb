"""Capability levels: what a node can enforce, and why not more."""

from dataclasses import replace
from pathlib import Path

import pytest

from isolation.cgroupfs import host_facts
from isolation.tree import HostFacts, capability_of

FULL = HostFacts(
    is_v2=True,
    is_v1=False,
    controllers=("cpu", "io", "memory", "pids"),
    is_writable=True,
    kernel="Linux version 6.12.107",
    has_kill=True,
)


@pytest.mark.parametrize(
    ("facts", "level", "why"),
    [
        (FULL, "full", "cgroup v2"),
        (replace(FULL, is_writable=False), "observe", "read-only"),
        (replace(FULL, controllers=("memory",)), "observe", "pids, cpu"),
        (replace(FULL, has_kill=False), "observe", "5.14"),
        (replace(FULL, controllers=("cpu", "pids")), "none", "memory controller"),
        (replace(FULL, is_v2=False, is_v1=True), "none", "cgroup v1"),
        (replace(FULL, is_v2=False), "none", "no cgroups"),
        (replace(FULL, kernel="Linux version 4.4.0 gVisor"), "none", "gVisor"),
    ],
)
def test_the_level_follows_from_what_the_machine_offers(facts: HostFacts, level: str, why: str) -> None:
    capability = capability_of(facts)

    assert capability.level == level
    assert why in capability.reason


@pytest.mark.parametrize(
    ("version", "has_kill"),
    [
        ("Linux version 5.13.0 (x)", False),
        ("Linux version 5.14.0 (x)", True),
        ("Linux version 7.2.7 (x)", True),
        ("?", False),
    ],
)
def test_cgroup_kill_is_known_by_the_kernels_version(tmp_path: Path, version: str, has_kill: bool) -> None:
    (tmp_path / "version").write_text(version)

    assert host_facts(tmp_path, tmp_path / "version").has_kill is has_kill


def test_a_folder_of_cgroup_v1_is_told_from_v2(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()

    facts = host_facts(tmp_path)

    assert facts.is_v1
    assert not facts.is_v2
