"""Nodes that carry a job's frames to the controller by the agents' own code, many in one process, and a controller."""

import asyncio
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import yaml

from controller.loops.health.analyser_process import BySize
from controller.loops.health.job_stream import frames_in
from controller.loops.health.loop import ReportQueue
from controller.loops.health.members import JobMember, Members
from controller.loops.health.stream import HealthStream
from controller.loops.power.domain_tree import PoweredNode
from controller.loops.power.loop import PowerLoop, PowerView
from health.records.frames import REPORT_KIND, packed
from nodeagent.__main__ import clock
from nodeagent.controller_link import ControllerLink
from nodeagent.health.feed import EVERY_S, HealthFeed
from nodeagent.health.pod_sockets import SOCKET, Deliver, PodSockets
from nodeagent.health.processes import NodeProcess, Ranks, Senders
from power.leases.messages import Inventory, Report, encoded, encoded_text
from power.rules import PowerRules
from tests.agents.credentials import Credentials, names_itself
from tests.builders.frame_header import header
from tests.rigs.health.large_job import job_of, read_job
from tests.rigs.health.recorded import TICK_S
from tonnage import records
from tonnage.records import RECORD_BYTES

PER_NODE = 8
JOB = "bench/job"
TURN_S, REST_S = 0.1, 0.02
SPAWN = get_context("spawn")
LEAD_S = 5.0
"""Time from the introductions to the first operations: the layout is complete and its tables are made by then."""


def control(pipe: Connection, folder: Path, nodes: Sequence[str], pace: float) -> None:
    """The controller: the agents' link in one thread, the analysis in another, as the operator runs them."""
    mailbox, stream, longest_turn_s = ReportQueue(), HealthStream(BySize()), 0.0
    members = tuple(JobMember(pod_of(node), f"bench/{node}", JOB, node, 0.0) for node in nodes)
    stream.follow(
        Members({each.uid: each for each in members}, {JOB: members}), {node: f"key-{node}" for node in nodes}
    )
    ports: list[int] = []
    threading.Thread(target=lambda: asyncio.run(_listen(mailbox, nodes, folder, ports)), daemon=True).start()
    while not ports:
        time.sleep(0.05)
    pipe.send(ports[0])
    awaited: int | None = None
    verdicts: list[tuple[float, str]] = []
    while True:
        mailbox.arrived.wait(TURN_S)
        mailbox.arrived.clear()
        began_s = clock()
        job_s = began_s * pace  # its clock runs as the job is played, so that a slow job is no hang
        for node, body in mailbox.take():
            stream.take(node, body, job_s)
        for each in stream.judge(job_s):
            blames = "blames" if each.part != "nothing" else "names"
            verdicts.append((began_s, f"{blames} {each.syndrome} {each.part} {[key.name for key in each.nodes][:4]}"))
        longest_turn_s = max(longest_turn_s, clock() - began_s)
        time.sleep(REST_S)
        if pipe.poll():
            said = pipe.recv()
            if said == "stop":
                break
            awaited = said
        if awaited is not None and len(stream.hosts) >= awaited:
            pipe.send("they have reported")
            awaited = None
            began_process_s, longest_turn_s = time.process_time(), 0.0
    cpu_s = time.process_time() - began_process_s
    analysed, refused = stream.jobs[JOB].records if JOB in stream.jobs else 0, dict(stream.refused)
    stream.jobs.clear()  # ends the process of a large job's analysis, which then counts as a child's
    apart = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    pipe.send(
        {
            "records": analysed,
            "cpu_s": cpu_s,
            "analyser_cpu_s": apart.ru_utime + apart.ru_stime,
            "analyser_memory_mb": apart.ru_maxrss // 1000,
            "longest_turn_s": longest_turn_s,
            "dropped": mailbox.dropped,
            "refused": refused,
            "memory_mb": int(status.partition("VmHWM:")[2].split()[0]) // 1000,
            "verdicts": verdicts,
        }
    )


@dataclass
class Alone:
    """A controller without rivals or predecessors, whose cluster stays as it is."""

    view: PowerView
    epoch: int = 1

    def may_write(self) -> bool:
        return True

    def see(self) -> PowerView:
        return self.view


async def _listen(queue: ReportQueue, nodes: Sequence[str], folder: Path, ports: list[int]) -> None:
    alone = Alone(PowerView({}, {node: PoweredNode() for node in nodes}))
    loop = PowerLoop(alone.see, alone, names_itself, clock, PowerRules(), [queue])
    ports.append(await loop.listen("127.0.0.1", 0, Credentials(folder / "shown").serves()))
    await loop.run()


class _AnyProcess:
    """Every sender is a process of the one pod of its node."""

    def __init__(self, pod: str) -> None:
        self._found = NodeProcess(0.0, "R", pod)

    def look(self, pid: int) -> NodeProcess:
        return self._found if pid else NodeProcess(0.0, "R", "")


def _link(folder: Path, node: str, port: int, hello: bytes) -> ControllerLink:
    """A node's connection, which shows its token and its inventory."""
    trusts = Credentials(folder / "shown").trusts
    return ControllerLink(
        *(node.encode, "127.0.0.1", port, lambda _: None, Random(port)),  # noqa: S311 - spreads attempts
        trusts,
        lambda: hello,
    )


class _Node:
    """One node of the process that holds many."""

    def __init__(self, folder: Path, node: str, port: int) -> None:
        self.node = node
        processes = _AnyProcess(pod_of(node))

        def sockets(deliver: Deliver) -> PodSockets:
            return PodSockets(folder / node, Senders(processes, clock), deliver, clock)

        self.feed = HealthFeed(node, "life", sockets, Ranks(processes), (), clock)
        self.feed.sockets.look()
        hello = encoded(Inventory(node, "life", {}))
        self.link = _link(folder, node, port, hello)
        self.powered_s, self.number = 0.0, 0

    def turn(self, now_s: float) -> None:
        self.feed.sockets.read(0)
        if now_s - self.powered_s > POWER_S:
            self.number += 1
            self.powered_s = now_s
            self.link.send(encoded(Report(self.node, "life", now_s, -1, self.number, {})))
        if self.link.is_idle and (report := self.feed.next_report()) is not None:
            self.link.send_bulk(encoded_text(REPORT_KIND, packed(report)))


def clients(pipe: Connection, folder: Path, nodes: Sequence[str], port: int) -> None:
    """All these nodes in one process, until something comes through the pipe."""

    async def run() -> None:
        made = [_Node(folder, node, port) for node in nodes]
        links = []
        for each in made:
            links.append(asyncio.create_task(each.link.keep_up()))
            await asyncio.sleep(0.002)
        pipe.send("up")
        began_s = time.process_time()
        while not pipe.poll():
            for count, each in enumerate(made):
                each.turn(clock())
                if count % 64 == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0.01)
        dropped: dict[str, int] = {}
        for each in made:
            for cause, number in each.feed.dropped.items():
                dropped[cause] = dropped.get(cause, 0) + number
        pipe.send({"cpu_s": time.process_time() - began_s, "dropped": dropped})
        for task in links:
            task.cancel()

    asyncio.run(run())


def agent_of(folder: Path, node: str, port: int, recorder_pid: int) -> "subprocess.Popen[bytes]":
    """An agent as a process, whose process table says that the recorder is its pod's."""
    own = folder / f"{node}-agent"
    shown = own / "proc" / str(recorder_pid)
    shown.mkdir(parents=True)
    (shown / "stat").write_text(f"{recorder_pid} (recorder) S {' '.join(['0'] * 18)} 100 0 0", encoding="ascii")
    scope = f"/kubepods.slice/kubepods-pod{pod_of(node).replace('-', '_')}.slice/cri-containerd-x.scope"
    (shown / "cgroup").write_text(f"0::{scope}\n", encoding="ascii")
    settings = {
        "node": node,
        "backend": "none",
        "controller": {"host": "127.0.0.1", "port": port, **Credentials(folder / "shown").shown_by(node)},
        "record": str(own / "record"),
        "metrics_host": "127.0.0.1",
        "metrics_port": 0,
        "health": {"enabled": True, "folder": str(folder / node), "proc": str(own / "proc")},
    }
    (own / "agent.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    words = [sys.executable, "-m", "nodeagent", "run", "--config", str(own / "agent.yaml")]
    return subprocess.Popen(words, stderr=subprocess.DEVNULL)  # noqa: S603 - our own


def record_job(pipe: Connection, folder: Path, job: Path, nodes: Sequence[str], pace: float) -> None:
    """Sends the frames of a job's file to the sockets of its nodes' pods, once it is told to."""
    pipe.recv()
    opened = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) for _ in nodes]
    for sending, node in zip(opened, nodes, strict=True):
        sending.connect(str(folder / node / pod_of(node) / SOCKET))
    dropped: dict[str, int] = {"full": 0}
    for rank, frame in introductions(PER_NODE * len(nodes)).items():
        _send(opened[rank // PER_NODE], frame, dropped)
        if rank % 64 == 0:
            time.sleep(0.005)
    time.sleep(LEAD_S)
    began_s, count = clock(), 0
    for tick, frames in enumerate(read_job(job)):
        split = _spread(frames)
        due_s = began_s + (tick + 1) * TICK_S / pace
        for number, (rank, frame) in enumerate(split):
            if number % 64 == 0:
                time.sleep(max(0.0, due_s + TICK_S / pace * number / len(split) - clock()))
            if _send(opened[rank // PER_NODE], frame, dropped):
                count += len(frame) // records.RECORD_BYTES - 1
    took_s = clock() - began_s
    time.sleep(1.0 / pace)
    pipe.send({"records": count, "dropped": dropped, "took_s": took_s, "began_s": began_s})


def _spread(frames: bytes) -> list[tuple[int, bytes]]:
    """Frames of a tick in the order of sending: ranks of one node flush at instants of their own, not all at once."""
    nth: dict[int, int] = {}
    found = []
    for rank, _, frame in frames_in(frames):
        nth[rank] = nth.get(rank, -1) + 1
        found.append((nth[rank], rank % PER_NODE, rank, frame))
    return [(rank, frame) for _, _, rank, frame in sorted(found, key=lambda each: each[:3])]


def _send(opened: socket.socket, frame: bytes, dropped: dict[str, int]) -> bool:
    with suppress(BlockingIOError):
        opened.send(frame)
        return True
    dropped["full"] += 1
    return False


def introductions(ranks: int) -> Mapping[int, bytes]:
    """Frame that introduces each rank of the job."""
    made = job_of(ranks).introductions()
    order = made.rank.argsort(kind="stable")
    rows, rank = made.rows[order], made.rank[order]
    found = {}
    for each in range(ranks):
        low, high = rank.searchsorted([each, each + 1])
        head = header(int(high - low), rank=each, at_ns=0)
        found[each] = head + rows[low:high].tobytes()
    return found


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
    path: Path, job: Path, introductions: Mapping[int, bytes], nodes: Sequence[str], lead_s: float
) -> int:
    """Writes the reports that the agents of a job's nodes would send, in the order of their instants; returns the
    number of the job's records in them.

    job: frames by tick. introductions: frame that introduces each rank, sent at 0; the job begins at `lead_s`.
    """
    count = 0
    made = _Agents(nodes, len(introductions) // len(nodes))
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
    def __init__(self, nodes: Sequence[str], per_node: int) -> None:
        self._now_s, self._per_node, self._nodes = 0.0, per_node, nodes

        def sockets(_: Deliver) -> Any:
            return _NoSockets()

        processes = _NoProcesses()
        self._feeds = [HealthFeed(node, "life", sockets, Ranks(processes), (), lambda: self._now_s) for node in nodes]

    def write(self, file: Any, of_rank: Mapping[int, Sequence[bytes]], from_s: float) -> None:
        """Frames of one tick: each rank flushes at an instant of its own in it, each agent looks at its own as well."""
        sent: list[tuple[float, int, bytes]] = []
        looks = round(TICK_S / EVERY_S)
        for number, (node, feed) in enumerate(zip(self._nodes, self._feeds, strict=True)):
            begin_s = from_s + EVERY_S * number / len(self._nodes)
            for look in range(looks):
                self._now_s = begin_s + look * EVERY_S
                for index in range(self._per_node):
                    if index * looks // self._per_node == look:
                        for frame in of_rank.get(number * self._per_node + index, ()):
                            feed.outbox.add(pod_of(node), frame)
                if (report := feed.next_report()) is not None:
                    sent.append((self._now_s, number, encoded_text(REPORT_KIND, packed(report))))
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


def send_reports(pipe: Connection, path: Path, nodes: Sequence[str], port: int, pace: float) -> None:
    """Connects for every node, says so, and sends the reports at their instants once it is told to."""
    asyncio.run(_Senders(path.parent, nodes, port).run(pipe, path, pace))


class _Senders:
    """Connections of all nodes in one process, which sends what was made before, and reports on power."""

    def __init__(self, folder: Path, nodes: Sequence[str], port: int) -> None:
        self._nodes = nodes
        self._links = [_link(folder, node, port, encoded(Inventory(node, "life", {}))) for node in nodes]
        self._backlog: dict[int, deque[bytes]] = {}
        self._powered_s = [clock() + POWER_S * number / len(nodes) for number in range(len(nodes))]
        self._numbers = [0] * len(nodes)

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
                link.send(encoded(report))
