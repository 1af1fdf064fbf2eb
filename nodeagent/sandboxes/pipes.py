"""Pipes between tool calls: whether a frozen call holds an end that a running call waits for. Reads /proc."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ACCESS_MODE = 0o3
"""O_ACCMODE of open(2): 0 is reading, 1 writing, 2 both."""


@dataclass(frozen=True, slots=True)
class PipeEnds:
    """Inodes of the pipes that processes hold open."""

    read: frozenset[int] = frozenset()
    write: frozenset[int] = frozenset()


def pipe_ends(pids: Iterable[int], proc: Path = Path("/proc")) -> PipeEnds:
    """Ends held by the processes; those that ended meanwhile hold none."""
    read: set[int] = set()
    write: set[int] = set()
    for pid in pids:
        with suppress(OSError):
            for entry in os.listdir(proc / str(pid) / "fd"):
                _add_end(proc / str(pid), entry, read, write)
    return PipeEnds(frozenset(read), frozenset(write))


def _add_end(process: Path, descriptor: str, read: set[int], write: set[int]) -> None:
    with suppress(OSError):
        target = str((process / "fd" / descriptor).readlink())
        if not target.startswith("pipe:["):
            return
        inode = int(target[len("pipe:[") : -1])
        mode = _access_mode((process / "fdinfo" / descriptor).read_text(encoding="ascii"))
        if mode != os.O_WRONLY:
            read.add(inode)
        if mode != os.O_RDONLY:
            write.add(inode)


def _access_mode(fdinfo: str) -> int:
    flags = next((line.split()[1] for line in fdinfo.splitlines() if line.startswith("flags:")), "0")
    return int(flags, 8) & ACCESS_MODE


def feeding(frozen: Mapping[str, PipeEnds], running: Mapping[str, PipeEnds]) -> frozenset[str]:
    """Frozen calls that hold the other end of a pipe of a running call: it may wait for them without end.

    Both directions count: a reader waits for data, a writer for room. A pipe that both hold alike, such as an inherited
    output of the agent's, ties nobody.
    """
    return frozenset(
        call
        for call, held in frozen.items()
        if any(
            held.write & (other.read - other.write) or held.read & (other.write - other.read)
            for other in running.values()
        )
    )
