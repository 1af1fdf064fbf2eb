"""Capability levels: what can be enforced on a node, seen, or neither, and why."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["full", "observe", "none"]

NEEDED = ("memory", "pids", "cpu")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a machine offers below one folder of cgroups."""

    is_v2: bool
    is_v1: bool
    controllers: tuple[str, ...]
    is_writable: bool
    kernel: str
    """Text of /proc/version."""
    has_pressure: bool
    """Whether the kernel reports pressure stall information (PSI)."""
    has_kill: bool
    """Whether the kernel has cgroup.kill (Linux 5.14)."""


@dataclass(frozen=True, slots=True)
class Capability:
    """Level with its reason, for status and logs."""

    level: Level
    reason: str


def capability_of(facts: HostFacts) -> Capability:
    """full: calls are limited, frozen and killed. observe: memory is read only. none: nothing is known."""
    if "gVisor" in facts.kernel:
        return Capability("none", "gVisor's cgroup files are virtual and enforce nothing")
    if not facts.is_v2:
        found = "cgroup v1" if facts.is_v1 else "no cgroups"
        return Capability("none", f"{found}: isolation needs cgroup v2 (systemd.unified_cgroup_hierarchy=1)")
    missing = [controller for controller in NEEDED if controller not in facts.controllers]
    if "memory" in missing:
        return Capability("none", "the memory controller is not delegated to this cgroup")
    if not facts.is_writable:
        return Capability("observe", "the cgroup tree is read-only: mount it writable, or delegate it")
    if missing:
        return Capability("observe", f"controllers are not delegated to this cgroup: {', '.join(missing)}")
    if not facts.has_kill:
        return Capability("observe", "the kernel has no cgroup.kill: isolation needs Linux 5.14 or newer")
    return Capability("full", "cgroup v2, writable" + ("" if facts.has_pressure else "; no pressure information"))
