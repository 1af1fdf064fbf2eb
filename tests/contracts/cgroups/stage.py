"""Cgroups under the contract: the fake, and a real kernel's in a guest, with processes that a test steers."""

import mmap
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cluster.errors import GuestError
from isolation.cgroupfs import CgroupFs
from isolation.tree import CgroupFiles
from tests.builders.fake_cgroups import FakeCgroups
from tests.rigs.kernel.guest import Guest
from tests.rigs.launcher import run_in

MIB = 1 << 20
ROOT = "/sys/fs/cgroup"
FOLDER = "/dev/shm"  # noqa: S108 - memory of the guest


class Stage(CgroupFiles, Protocol):
    """Files of cgroups, and processes in them."""

    def start(self, group: str) -> int:
        """A process in the group. Raises OSError."""

    def allocate(self, pid: int, total_bytes: int) -> None:
        """Has the process hold so much memory, as far as it may; returns after a while where it may not."""

    def is_alive(self, pid: int) -> bool: ...


class FakeStage(FakeCgroups):
    """The fake, whose processes need no waiting."""


@dataclass
class KernelStage:
    """A kernel's cgroups, reached through calls into the guest."""

    guest: Guest
    groups: list[str] = field(default_factory=list)

    def make(self, group: str) -> None:
        self._call("make", group)
        self.groups.append(group)

    def remove(self, group: str) -> None:
        self._call("remove", group)
        self.groups.remove(group)

    def children(self, group: str) -> tuple[str, ...]:
        return tuple(self._call("children", group))

    def read(self, group: str, file: str) -> str:
        return str(self._call("read", group, file))

    def write(self, group: str, file: str, value: str) -> None:
        self._call("write", group, file, value)

    def start(self, group: str) -> int:
        return int(self._call("start", group))

    def allocate(self, pid: int, total_bytes: int) -> None:
        self._call("allocate", pid, total_bytes)

    def is_alive(self, pid: int) -> bool:
        return bool(self._call("is_alive", pid))

    def clear(self) -> None:
        """Kills what is left and removes the groups, children first."""
        for group in sorted(self.groups, reverse=True):
            self.guest.call(f"{__name__}:clear", group)
        self.groups.clear()

    def _call(self, name: str, *arguments: Any) -> Any:
        result = self.guest.call(f"{__name__}:in_guest", name, *arguments)
        if "errno" in result:
            raise OSError(result["errno"], result["error"])
        return result["value"]


def in_guest(name: str, *arguments: Any) -> dict[str, Any]:
    """Runs in the guest: one operation, its OSError as data."""
    files = CgroupFs(Path(ROOT))
    own: dict[str, Callable[..., Any]] = {"start": _start, "allocate": _allocate, "is_alive": _is_alive}
    try:
        operation = own[name] if name in own else getattr(files, name)
        return {"value": operation(*arguments)}
    except OSError as error:
        return {"errno": error.errno, "error": str(error)}


def clear(group: str) -> None:
    """Runs in the guest."""
    files = CgroupFs(Path(ROOT))
    files.write(group, "cgroup.kill", "1")
    for _ in range(200):
        try:
            files.remove(group)
            return
        except OSError:
            time.sleep(0.01)  # init reaps what was killed
    raise GuestError(f"clearing {group}: it is still in use")


def _start(group: str) -> int:
    files = CgroupFs(Path(ROOT))
    pid, _ = run_in(files.folder(group), _obey)
    while not Path(f"{FOLDER}/{pid}.ready").exists():
        time.sleep(0.001)
    return pid


def _obey() -> int:
    """The process: holds as much as its file says, page by page, until it is killed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    orders, held = Path(f"{FOLDER}/{os.getpid()}.orders"), Path(f"{FOLDER}/{os.getpid()}.held")
    orders.write_text("0", encoding="ascii")
    Path(f"{FOLDER}/{os.getpid()}.ready").touch()
    blocks: list[mmap.mmap] = []
    while True:
        wanted = int(orders.read_text(encoding="ascii") or 0)
        while len(blocks) * MIB < wanted:
            blocks.append(mmap.mmap(-1, MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
            held.write_text(str(len(blocks) * MIB), encoding="ascii")
        time.sleep(0.002)


def _allocate(pid: int, total_bytes: int) -> None:
    unfinished = Path(f"{FOLDER}/{pid}.unfinished")
    unfinished.write_text(str(total_bytes), encoding="ascii")
    unfinished.rename(f"{FOLDER}/{pid}.orders")
    held = Path(f"{FOLDER}/{pid}.held")
    for _ in range(50):
        if not _is_alive(pid) or (held.exists() and int(held.read_text(encoding="ascii") or 0) >= total_bytes):
            return
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False
