"""Orphans: tool calls that an earlier process of the node agent left frozen. Reads the whole tree of pods."""

from collections.abc import Iterator
from contextlib import suppress

from isolation.tree import AGENT, CALL_PREFIX, LIGHT, CgroupFiles

DEPTH = 5
"""Folders between the kubelet's root and a container: classes, pod, and one to spare."""
ROOTS = ("kubepods.slice", "kubepods")


def thaw_orphans(files: CgroupFiles, below: str = "") -> tuple[str, ...]:
    """Thaws every call and every adopted container that is frozen. Returns their groups."""
    thawed = []
    for name in ROOTS:
        for home in _adopted(files, f"{below}/{name}".strip("/"), DEPTH):
            thawed += [group for group in _groups_of(files, home) if _thawed(files, group)]
    return tuple(thawed)


def _adopted(files: CgroupFiles, group: str, depth: int) -> Iterator[str]:
    """Containers that were adopted: they have a leaf for the agent and one for light calls."""
    children: tuple[str, ...] = ()
    with suppress(OSError):
        children = files.children(group)
    if AGENT in children and LIGHT in children:
        yield group
    elif depth:
        for child in children:
            yield from _adopted(files, f"{group}/{child}", depth - 1)


def _groups_of(files: CgroupFiles, home: str) -> tuple[str, ...]:
    calls = [child for child in files.children(home) if child.startswith(CALL_PREFIX)]
    return (home, *(f"{home}/{call}" for call in calls))


def _thawed(files: CgroupFiles, group: str) -> bool:
    with suppress(OSError):
        if files.read(group, "cgroup.freeze").strip() == "1":
            files.write(group, "cgroup.freeze", "0")
            return True
    return False
