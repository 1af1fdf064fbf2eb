"""Cgroup v2 files of this machine, below one folder. Touches the kernel; the fake is tests/builders/fake_cgroups.py.

No symbolic link is followed below the folder, and open files are kept: reading a hot file again costs one system call.
"""

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from isolation.tree import Capability, is_below


class CgroupFs:
    """Implements `CgroupFiles`. Not for several threads."""

    def __init__(self, root: Path) -> None:
        self._folders = {"": os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}
        self._files: dict[tuple[str, str], int] = {}

    def make(self, group: str) -> None:
        parent, _, name = group.rpartition("/")
        os.mkdir(name, 0o755, dir_fd=self.folder(parent))

    def remove(self, group: str) -> None:
        parent, _, name = group.rpartition("/")
        os.rmdir(name, dir_fd=self.folder(parent))
        self.forget(group)

    def children(self, group: str) -> tuple[str, ...]:
        with os.scandir(self.folder(group)) as entries:
            return tuple(sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))

    def read(self, group: str, file: str) -> str:
        return os.pread(self.file(group, file), 65536, 0).decode("ascii")

    def write(self, group: str, file: str, value: str) -> None:
        """Written through a descriptor of its own: files such as cgroup.kill cannot be read."""
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(file, flags, dir_fd=self.folder(group))
        try:
            os.write(descriptor, value.encode("ascii"))
        finally:
            os.close(descriptor)

    def file(self, group: str, file: str) -> int:
        """Open file, kept until the group is removed; poll(2) for POLLPRI reports changes of the events files."""
        if (group, file) not in self._files:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._files[group, file] = os.open(file, flags, dir_fd=self.folder(group))
        return self._files[group, file]

    def folder(self, group: str) -> int:
        """Open folder of a group, as clone3 takes it."""
        if group not in self._folders:
            parent, _, name = group.rpartition("/")
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._folders[group] = os.open(name, flags, dir_fd=self.folder(parent))
        return self._folders[group]

    def close(self) -> None:
        for descriptor in (*self._files.values(), *self._folders.values()):
            os.close(descriptor)
        self._files.clear()
        self._folders.clear()

    def forget(self, group: str) -> None:
        """Closes what is open of a group and of all below it, such as of a container that is gone."""
        for key in [key for key in self._files if is_below(key[0], group)]:
            os.close(self._files.pop(key))
        for name in [name for name in self._folders if name and is_below(name, group)]:
            os.close(self._folders.pop(name))


NEEDED = ("memory", "pids", "cpu")


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK)


def capability_of(
    root: Path, version: Path = Path("/proc/version"), may_write: Callable[[Path], bool] = _may_write
) -> Capability:
    """What this machine can do below the folder of cgroups, and why not more.

    full: calls are limited, frozen and killed. observe: memory is read only. none: nothing is known.
    """
    kernel, controllers = _text(version), _text(root / "cgroup.controllers").split()
    if "gVisor" in kernel:
        return Capability("none", "gVisor's cgroup files are virtual and enforce nothing")
    if not (root / "cgroup.controllers").exists():
        found = "cgroup v1" if (root / "memory").is_dir() or (root / "tasks").exists() else "no cgroups"
        return Capability("none", f"{found}: isolation needs cgroup v2 (systemd.unified_cgroup_hierarchy=1)")
    missing = [controller for controller in NEEDED if controller not in controllers]
    if "memory" in missing:
        return Capability("none", "the memory controller is not delegated to this cgroup")
    if not (may_write(root) and may_write(root / "cgroup.subtree_control")):
        return Capability("observe", "the cgroup tree is read-only: mount it writable, or delegate it")
    if missing:
        return Capability("observe", f"controllers are not delegated to this cgroup: {', '.join(missing)}")
    # By its version: the root group has no such file to look for.
    release = re.match(r"Linux version (\d+)\.(\d+)", kernel)
    if release is None or (int(release[1]), int(release[2])) < (5, 14):
        return Capability("observe", "the kernel has no cgroup.kill: isolation needs Linux 5.14 or newer")
    return Capability("full", "cgroup v2, writable")


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace")
    return ""
