"""Counts of events on an API server by watches, and the CPU time of its processes."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cluster.errors import ControlPlaneError
from controller.kube.connection import Connection

IDLE_S = 600.0


@dataclass(slots=True)
class Tally:
    """Count of objects in a watch."""

    count: int = 0
    last_at_s: float = 0.0
    """Time of the last one, seconds since the epoch; 0 before the first."""

    def take(self, kind: str) -> None:
        if kind == "ADDED":
            self.count += 1
            self.last_at_s = time.time()

    def quiet_s(self, since_s: float) -> float:
        """Seconds since the last one, or since `since_s` if that is later."""
        return time.time() - max(self.last_at_s, since_s)


@asynccontextmanager
async def tallied(api: Connection, *watches: tuple[str, Mapping[str, str]]) -> AsyncIterator[list[Tally]]:
    """One count per path and query, from now on.

    Raises KubeReadError or ControlPlaneError (in a group) when a watch breaks, because the counts are then invalid.
    """
    tallies = [Tally() for _ in watches]
    started = [asyncio.Event() for _ in watches]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_follow(api, path, query, tally, event))
            for (path, query), tally, event in zip(watches, tallies, started, strict=True)
        ]
        for event in started:
            await event.wait()
        yield tallies
        for task in tasks:
            task.cancel()


async def _follow(api: Connection, path: str, query: Mapping[str, str], tally: Tally, started: asyncio.Event) -> None:
    listed = msgspec.json.decode(await api.read(path, {"limit": "1", **query}))
    version = str(listed["metadata"]["resourceVersion"])
    started.set()  # the watch delivers all later versions
    while True:  # the server may end a watch at any time
        since = {"resourceVersion": version, "timeoutSeconds": "3600"}
        async with aclosing(api.watch(path, {**query, **since}, idle_s=IDLE_S)) as lines:
            async for line in lines:
                event = _LINE.decode(line)
                if event.type == "ERROR":
                    raise ControlPlaneError(f"watching {path}: {line.decode()}")
                version = event.object.metadata.resource_version
                tally.take(event.type)


class _Meta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: _Object


_LINE = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of processes."""

    api: float
    etcd: float
    scheduler: float

    def since(self, before: "Cpu") -> "Cpu":
        return Cpu(self.api - before.api, self.etcd - before.etcd, self.scheduler - before.scheduler)


def cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads, seconds (/proc/PID/stat, fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
