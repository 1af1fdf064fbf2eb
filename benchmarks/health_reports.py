"""Reports of many agents made before a job is played, and their sending: for a controller at full pace on few cores.

The agents' own code makes the reports, turn by turn on a simulated clock. They are sealed with the nodes' keys and sent
at their instants, over a connection for each node.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.health_scale import read_job
from controller.loops.health.job_stream import frames_in
from health.records.frames import REPORT_KIND, packed
from nodeagent.__main__ import clock
from nodeagent.controller_link import ControllerLink
from nodeagent.health.feed import EVERY_S, HealthFeed
from nodeagent.health.pod_sockets import Deliver
from nodeagent.health.processes import Ranks
from power.leases.messages import Inventory, Keys, Report, sealed, sealed_text
from power.leases.mounted_keys import keys_of_node
from simulator.health.recorder_frames import TICK_S
from tonnage.records import RECORD_BYTES

POWER_S = 2.0
_HEAD = struct.Struct("<dII")
"""Instant, node, bytes."""


@dataclass(frozen=True, slots=True)
class _NoSockets:
    """Frames come from a file."""

    dropped: dict[str, int] = field(default_factory=dict)


class _NoProcesses:
    def look(self, pid: int) -> Any:
        raise NotImplementedError


def write_reports(
    path: Path, job: Path, introductions: Mapping[int, bytes], nodes: Sequence[str], fleet: Keys, lead_s: float
) -> int:
    """Writes the reports that the agents of a job's nodes would send, in the order of their instants; returns the
    number of the job's records in them.

    job: frames by tick. introductions: frame that introduces each rank, sent at 0; the job begins at `lead_s`.
    """
    count = 0
    made = _Agents(nodes, fleet, len(introductions) // len(nodes))
    with path.open("wb") as file:
        made.write(file, {rank: [frame] for rank, frame in introductions.items()}, 0.0)
        for tick, frames in enumerate(read_job(job)):
            of_rank: dict[int, list[bytes]] = {}
            for rank, _, frame in frames_in(frames):
                of_rank.setdefault(rank, []).append(frame)
                count += len(frame) // RECORD_BYTES - 1
            made.write(file, of_rank, lead_s + (tick + 1) * TICK_S)
        made.write(file, {}, lead_s + (tick + 2) * TICK_S)
    return count


class _Agents:
    def __init__(self, nodes: Sequence[str], fleet: Keys, per_node: int) -> None:
        self._now_s, self._per_node, self._nodes = 0.0, per_node, nodes
        self._keys = [keys_of_node(fleet, node) for node in nodes]

        def sockets(_: Deliver) -> Any:
            return _NoSockets()

        processes = _NoProcesses()
        self._feeds = [HealthFeed(node, "life", sockets, Ranks(processes), (), lambda: self._now_s) for node in nodes]

    def write(self, file: Any, of_rank: Mapping[int, Sequence[bytes]], from_s: float) -> None:
        """Frames of one tick: each rank flushes at an instant of its own in it, each agent looks at its own as well."""
        sent: list[tuple[float, int, bytes]] = []
        looks = round(TICK_S / EVERY_S)
        for number, (node, feed, keys) in enumerate(zip(self._nodes, self._feeds, self._keys, strict=True)):
            begin_s = from_s + EVERY_S * number / len(self._nodes)
            for look in range(looks):
                self._now_s = begin_s + look * EVERY_S
                for index in range(self._per_node):
                    if index * looks // self._per_node == look:
                        for frame in of_rank.get(number * self._per_node + index, ()):
                            feed.outbox.add(pod_of(node), frame)
                if (report := feed.next_report()) is not None:
                    sent.append((self._now_s, number, sealed_text(REPORT_KIND, packed(report), keys, node)))
        for at_s, number, message in sorted(sent, key=lambda each: each[:2]):
            file.write(_HEAD.pack(at_s, number, len(message)) + message)


def pod_of(node: str) -> str:
    """UID of the one pod of a node `n00012`."""
    return f"00000000-0000-0000-0000-{int(node[1:]):012d}"


def _reports(path: Path) -> Iterator[tuple[float, int, bytes]]:
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            at_s, number, length = _HEAD.unpack(head)
            yield at_s, number, file.read(length)


def send_reports(pipe: Connection, path: Path, nodes: Sequence[str], fleet: Keys, port: int, pace: float) -> None:
    """Connects for every node, says so, and sends the reports at their instants once it is told to."""
    asyncio.run(_Senders(nodes, fleet, port).run(pipe, path, pace))


class _Senders:
    """Connections of all nodes in one process, which sends what was sealed before, and reports on power."""

    def __init__(self, nodes: Sequence[str], fleet: Keys, port: int) -> None:
        self._nodes, self._port = nodes, port
        self._keys = [keys_of_node(fleet, node) for node in nodes]
        self._links = [self._link(node, keys) for node, keys in zip(nodes, self._keys, strict=True)]
        self._backlog: dict[int, deque[bytes]] = {}
        self._powered_s = [clock() + POWER_S * number / len(nodes) for number in range(len(nodes))]
        self._numbers = [0] * len(nodes)

    def _link(self, node: str, keys: Keys) -> ControllerLink:
        hello = sealed(Inventory(node, "life", {}), keys, node)
        return ControllerLink(node, "127.0.0.1", self._port, lambda _: None, Random(self._port), None, lambda: hello)  # noqa: S311

    async def run(self, pipe: Connection, path: Path, pace: float) -> None:
        tasks = []
        for link in self._links:
            tasks.append(asyncio.create_task(link.keep_up()))
            await asyncio.sleep(0.002)
        while not all(link.is_up for link in self._links):
            await asyncio.sleep(0.1)
        pipe.send("up")
        while not pipe.poll():
            self._turn()
            await asyncio.sleep(0.05)
        pipe.recv()
        began_s, began_cpu_s = clock(), time.process_time()
        latest_s = await self._play(path, pace, began_s)
        took_s = clock() - began_s
        ends_s = clock() + 5.0
        while self._backlog and clock() < ends_s:
            self._turn()
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0 / pace)
        unsent = sum(map(len, self._backlog.values()))
        cpu_s = time.process_time() - began_cpu_s
        pipe.send({"began_s": began_s, "took_s": took_s, "latest_s": latest_s, "cpu_s": cpu_s, "unsent": unsent})
        for task in tasks:
            task.cancel()

    async def _play(self, path: Path, pace: float, began_s: float) -> float:
        """Sends each report at its instant; returns by how much the latest one was late."""
        latest_s, turned_s = 0.0, 0.0
        for at_s, number, message in _reports(path):
            due_s = began_s + at_s / pace
            if due_s > clock() or clock() - turned_s > EVERY_S:
                self._turn()
                turned_s = clock()
                await asyncio.sleep(max(due_s - turned_s, 0.0))
            latest_s = max(latest_s, clock() - due_s)
            if number not in self._backlog and self._links[number].is_idle:
                self._links[number].send_bulk(message)
            else:
                self._backlog.setdefault(number, deque()).append(message)
        return latest_s

    def _turn(self) -> None:
        """Sends what had to wait for a connection, and reports on power where they are due."""
        for each in [each for each in self._backlog if self._links[each].is_idle]:
            self._links[each].send_bulk(self._backlog[each].popleft())
            if not self._backlog[each]:
                del self._backlog[each]
        now_s = clock()
        for number, link in enumerate(self._links):
            if now_s - self._powered_s[number] > POWER_S:
                self._powered_s[number] = now_s
                self._numbers[number] += 1
                report = Report(self._nodes[number], "life", now_s, -1, self._numbers[number], {})
                link.send(sealed(report, self._keys[number], self._nodes[number]))
