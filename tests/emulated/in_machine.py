"""What the tests have the emulated machine do: work on two CPUs, cpusets."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from isolation.cgroupfs import CgroupFs, capability_of
from isolation.ledger import MIB
from isolation.tree import SandboxTree
from tests.rigs.launcher import run_in

ROOT = Path("/sys/fs/cgroup")
FOLDER = "machine"
SPIN_S = 1.5


def about() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "controllers": (ROOT / "cgroup.subtree_control").read_text(encoding="ascii").split(),
        "capability": asdict(capability_of(ROOT)),
    }


def shares_of_cpu(weights: list[int], processes: int, cpus: str = "") -> list[float]:
    """CPU seconds that groups of such weights took within `SPIN_S`, each with so many processes that compute.

    cpus: the CPUs that all may use; empty: all.
    """
    with _tree() as (files, tree):
        groups = []
        for index, weight in enumerate(weights):
            group = tree.add_call("s", f"c{index}", 64 * MIB)
            files.write(group, "cpu.weight", str(weight))
            if cpus:
                files.write(group, "cpuset.cpus", cpus)
            groups.append(group)
        for group in groups:
            for _ in range(processes):
                run_in(files.folder(group), _spin)
        began = [_usage_s(files, group) for group in groups]
        time.sleep(SPIN_S)
        return [_usage_s(files, group) - start for group, start in zip(groups, began, strict=True)]


def stopped_on_two_cpus() -> dict[str, float]:
    """Of a call that computes on both CPUs: seconds from freeze to frozen, CPU seconds that it took in the half second
    after that, seconds from kill to empty."""
    with _tree() as (files, tree):
        group = tree.add_call("s", "a", 64 * MIB, max_bytes=64 * MIB)
        for _ in range(2):
            run_in(files.folder(group), _spin)
        while _usage_s(files, group) < 0.3:
            time.sleep(0.01)
        began_s = time.monotonic()
        tree.freeze("s", "a")
        frozen_s = _until(lambda: "frozen 1" in files.read(group, "cgroup.events")) - began_s
        time.sleep(0.1)
        used_s = _usage_s(files, group)
        time.sleep(0.5)
        used_s = _usage_s(files, group) - used_s
        began_s = time.monotonic()
        tree.kill("s", "a")
        killed_s = _until(lambda: "populated 0" in files.read(group, "cgroup.events")) - began_s
        return {"frozen_s": frozen_s, "used_s": used_s, "killed_s": killed_s}


@contextlib.contextmanager
def _tree() -> Iterator[tuple[CgroupFs, SandboxTree]]:
    root = CgroupFs(ROOT)
    root.make(FOLDER)
    root.write(FOLDER, "cgroup.subtree_control", "+cpu +cpuset +io +memory +pids")
    files = CgroupFs(ROOT / FOLDER)
    tree = SandboxTree(files)
    tree.prepare()
    tree.add_sandbox("s")
    files.write("s", "cgroup.subtree_control", "+cpuset")
    try:
        yield files, tree
    finally:
        root.write(FOLDER, "cgroup.kill", "1")
        _until(lambda: "populated 0" in root.read(FOLDER, "cgroup.events"))
        for leaf in files.children("s"):
            files.remove(f"s/{leaf}")
        files.remove("s")
        root.remove(FOLDER)


def _until(claim: Callable[[], bool]) -> float:
    """When the claim came true. Ended children are reaped meanwhile."""
    while not claim():
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)
    return time.monotonic()


def _usage_s(files: CgroupFs, group: str) -> float:
    lines: Mapping[str, str] = dict(line.split() for line in files.read(group, "cpu.stat").splitlines())  # type: ignore[misc]
    return int(lines["usage_usec"]) / 1e6


def _spin() -> int:
    while True:
        sum(range(1000))
