"""Cgroup v2 files of this machine, below one folder. Touches the kernel; the fake is tests/builders/fake_cgroups.py.

No symbolic link is followed below the folder, and open files are kept: reading a hot file again costs one system call.
"""

import contextlib
import os
from pathlib import Path

from isolation.tree import HostFacts, is_below


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


def host_facts(root: Path, version: Path = Path("/proc/version")) -> HostFacts:
    """What this machine offers below the folder of cgroups."""
    text = ""
    with contextlib.suppress(OSError):
        text = version.read_text(errors="replace")
    controllers = ""
    with contextlib.suppress(OSError):
        controllers = (root / "cgroup.controllers").read_text(encoding="ascii")
    # Whether the kernel is 5.14 or newer, which has cgroup.kill; the root group has no such file to look for.
    words = text.split()
    release = words[2] if text.startswith("Linux version ") and len(words) > 2 else ""
    numbers = release.split(".")[:2]
    return HostFacts(
        is_v2=(root / "cgroup.controllers").exists(),
        is_v1=(root / "memory").is_dir() or (root / "tasks").exists(),
        controllers=tuple(controllers.split()),
        is_writable=os.access(root, os.W_OK) and os.access(root / "cgroup.subtree_control", os.W_OK),
        kernel=text.strip(),
        has_kill=all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) >= (5, 14),
    )
