"""Health live: frames of many ranks over pods' sockets, agents and the signed link into the controller's analysis.

Every node has its socket, its outbox and its connection, as on a cluster; a few nodes are agents as processes of their
own, the others the same code in one process, without its timer thread. What is simulated is the job, whose datagrams
one process sends. On few cores the nodes' own work can be done first (`--reports-first`).
"""

import asyncio
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from random import Random
from typing import Any

import click
import yaml

from benchmarks import health_scale
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.health_reports import POWER_S, pod_of, send_reports, write_reports
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
from nodeagent.health.feed import HealthFeed
from nodeagent.health.pod_sockets import SOCKET, Deliver, PodSockets
from nodeagent.health.processes import NodeProcess, Ranks, Senders
from power.control.state import LearnedSpikes
from power.leases.messages import Inventory, Keys, Report, sealed, sealed_text
from power.leases.mounted_keys import keys_of_node
from power.rules import PowerRules
from simulator.health.recorder_frames import TICK_S
from tonnage import records

KEY = b"a secret of the fleet, long enough"
FLEET = Keys("k", {"k": KEY})
PER_NODE = 8
JOB = "bench/job"
TURN_S, REST_S = 0.1, 0.02
SPAWN = get_context("spawn")
LEAD_S = 5.0
"""Time from the introductions to the first operations: the layout is complete and its tables are made by then."""


@click.command(context_settings={"show_default": True})
@click.option("--ranks", type=click.IntRange(64), default=10_240, help="Ranks, a multiple of 64, eight on a node.")
@click.option("--seconds", type=click.FloatRange(5), default=14.0, help="Length of the job.")
@click.option("--pace", type=click.FloatRange(0.05, 1.0), default=1.0, help="Speed at which the job is played.")
@click.option("--agents", type=click.IntRange(0, 16), default=2, help="Nodes whose agents are processes of their own.")
@click.option("--reports-first", is_flag=True, help="Make all reports before the job: the controller gets the cores.")
@click.option("--seed", type=int, default=1)
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    ranks: int, seconds: float, pace: float, agents: int, reports_first: bool, seed: int, json_to: str | None
) -> None:
    """Play a job whose rank becomes slow into the whole path, and count records, drops, CPU time and lag."""
    with tempfile.TemporaryDirectory(prefix="h", dir="/tmp") as folder:  # a socket's path has 107 bytes at most
        setup = _Setup(Path(folder), ranks, seconds, pace, 0 if reports_first else agents, seed)
        record = _measured(setup, _reports_sent if reports_first else _frames_sent)
    record |= {"ranks": ranks, "pace": pace, "agents": setup.agents, "seed": seed}
    if json_to is not None:
        write_lines(json_to, [record])
    else:
        click.echo("\n".join(f"{name:32} {value}" for name, value in record.items()))


@dataclass(frozen=True, slots=True)
class _Setup:
    folder: Path
    ranks: int
    seconds: float
    pace: float
    agents: int
    seed: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"n{number:05}" for number in range(self.ranks // PER_NODE))

    @property
    def job(self) -> Path:
        """File of the job's frames, by tick."""
        return self.folder / "frames"


@dataclass(frozen=True, slots=True)
class _Sent:
    """What left for the controller."""

    began_s: float
    took_s: float
    records: int
    counts: Mapping[str, object]


Play = Callable[[_Setup, int, Callable[[int], None]], _Sent]
"""Connects all nodes to a port, calls a function that waits for so many nodes' first reports, and plays the job."""


def _measured(setup: _Setup, play: Play) -> dict[str, object]:
    writing = SPAWN.Process(target=_write, args=(setup,))
    writing.start()
    writing.join()
    fault_s = float((setup.folder / "fault").read_text(encoding="ascii"))
    here, there = SPAWN.Pipe()
    control = SPAWN.Process(target=_control, args=(there, setup.nodes, setup.pace))
    control.start()
    port: int = here.recv()

    def connected(reported: int) -> None:
        here.send(reported)
        here.recv()

    try:
        sent = play(setup, port, connected)
        here.send("stop")
        seen: dict[str, Any] = here.recv()
    finally:
        _ended(control)
    named = [at_s for at_s, words in seen["verdicts"] if "blames" in words]
    lag_s = named[0] - (sent.began_s + fault_s / setup.pace) if named else float("nan")
    taken = seen["records"] or 1
    return {
        "records_sent": sent.records,
        "records_analysed": seen["records"],
        "wall_s": round(sent.took_s, 1),
        "records_per_s": round(seen["records"] / sent.took_s),
        **sent.counts,
        "dropped_by_controller": seen["dropped"],
        "refused_by_controller": seen["refused"],
        "cpu_us_per_record_controller": round(seen["cpu_s"] / taken * 1e6, 3),
        "cpu_us_per_record_analyser": round(seen["analyser_cpu_s"] / taken * 1e6, 3),
        "longest_turn_s": round(seen["longest_turn_s"], 2),
        "controller_memory_mb": seen["memory_mb"],
        "analyser_memory_mb": seen["analyser_memory_mb"],
        "fault_to_verdict_s": round(lag_s, 2),
        "fault_to_verdict_of_the_job_s": round(lag_s * setup.pace, 2),
        "verdicts": [words for _, words in seen["verdicts"]],
    }


def _frames_sent(setup: _Setup, port: int, connected: Callable[[int], None]) -> _Sent:
    """Datagrams of all ranks to their pods' sockets, and the agents' code live behind them."""
    folder, nodes, agents = setup.folder, setup.nodes, setup.agents
    for node in nodes:
        (folder / node / pod_of(node)).mkdir(parents=True)
    with_clients, clients_end = SPAWN.Pipe()
    clients = SPAWN.Process(target=_clients, args=(clients_end, folder, nodes[agents:], port))
    clients.start()
    with_recorder, recorder_end = SPAWN.Pipe()
    recorder = SPAWN.Process(target=_record, args=(recorder_end, setup))
    recorder.start()
    processes = [_agent(folder, node, port, recorder.pid or 0) for node in nodes[:agents]]
    try:
        with_clients.recv()
        connected(len(nodes))
        with_recorder.send("go")
        sent: dict[str, Any] = with_recorder.recv()
        own = [_cpu_s(process.pid) for process in processes]
        with_clients.send("stop")
        carried: dict[str, Any] = with_clients.recv()
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for each in (clients, recorder):
            _ended(each)
    nodes_us = carried["cpu_s"] / max(sent["records"], 1) * 1e6 * len(nodes) / max(len(nodes) - agents, 1)
    counts = {
        "dropped_by_recorders": sent["dropped"],
        "dropped_on_nodes": carried["dropped"],
        "cpu_us_per_record_nodes": round(nodes_us, 3),
        "cpu_share_of_an_agent": [round(each / sent["took_s"], 3) for each in own],
    }
    return _Sent(sent["began_s"], sent["took_s"], sent["records"], counts)


def _reports_sent(setup: _Setup, port: int, connected: Callable[[int], None]) -> _Sent:
    """Reports that the agents' code made and sealed before, sent at their instants."""
    path = setup.folder / "reports"
    first_s = LEAD_S * setup.pace  # the lead is no part of the job, whatever its pace
    records = write_reports(path, setup.job, introductions(setup.ranks), setup.nodes, FLEET, first_s)
    pipe, end = SPAWN.Pipe()
    senders = SPAWN.Process(target=send_reports, args=(end, path, setup.nodes, FLEET, port, setup.pace))
    senders.start()
    try:
        pipe.recv()
        connected(0)
        pipe.send("go")
        sent: dict[str, Any] = pipe.recv()
    finally:
        _ended(senders)
    counts = {
        "reports_unsent": sent["unsent"],
        "latest_report_s": round(sent["latest_s"], 2),
        "cpu_share_of_sending": round(sent["cpu_s"] / sent["took_s"], 2),
    }
    return _Sent(sent["began_s"] + LEAD_S, sent["took_s"] - LEAD_S, records, counts)


def _ended(process: SpawnProcess) -> None:
    process.join(5.0)
    if process.is_alive():
        process.terminate()


def _write(setup: _Setup) -> None:
    fault_s = health_scale.write_job(setup.ranks, setup.seconds, setup.seed, setup.job)
    (setup.folder / "fault").write_text(str(fault_s), encoding="ascii")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# The controller: the agents' link in one thread, the analysis in another, as the operator runs them.


def _control(pipe: Connection, nodes: Sequence[str], pace: float) -> None:
    queue, stream, longest_turn_s = ReportQueue(), HealthStream(BySize()), 0.0
    members = tuple(JobMember(pod_of(node), f"bench/{node}", JOB, node, f"key-{node}", 0.0) for node in nodes)
    stream.follow(
        Members({each.uid: each for each in members}, {JOB: members}), {node: f"key-{node}" for node in nodes}
    )
    ports: list[int] = []
    threading.Thread(target=lambda: asyncio.run(_link(queue, nodes, ports)), daemon=True).start()
    while not ports:
        time.sleep(0.05)
    pipe.send(ports[0])
    awaited: int | None = None
    verdicts: list[tuple[float, str]] = []
    while True:
        queue.arrived.wait(TURN_S)
        began_s = clock()
        job_s = began_s * pace  # its clock runs as the job is played, so that a slow job is no hang
        for node, body in queue.take():
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
            "dropped": queue.dropped,
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

    def learned(self, memory_s: float) -> Mapping[str, LearnedSpikes]:  # noqa: ARG002 - nothing was learnt
        return {}


async def _link(queue: ReportQueue, nodes: Sequence[str], ports: list[int]) -> None:
    alone = Alone(PowerView({}, {node: PoweredNode() for node in nodes}))
    loop = PowerLoop(alone, alone, lambda: FLEET, clock, PowerRules(), [queue])
    ports.append(await loop.listen("127.0.0.1", 0, None))
    await loop.run()


# Nodes: the agent's own sockets, outbox, reports and connection.


class _AnyProcess:
    """Every sender is a process of the one pod of its node."""

    def __init__(self, pod: str) -> None:
        self._found = NodeProcess(0.0, "R", pod)

    def look(self, pid: int) -> NodeProcess:
        return self._found if pid else NodeProcess(0.0, "R", "")


class _Node:
    """One node of the process that holds many."""

    def __init__(self, folder: Path, node: str, port: int) -> None:
        self.node, self.keys, self.kinds = node, keys_of_node(FLEET, node), ""
        processes = _AnyProcess(pod_of(node))

        def sockets(deliver: Deliver) -> PodSockets:
            return PodSockets(folder / node, Senders(processes, clock), deliver, clock)

        self.feed = HealthFeed(node, "life", sockets, Ranks(processes), (), clock)
        self.feed.sockets.look()
        hello = sealed(Inventory(node, "life", {}), self.keys, node)
        self.link = ControllerLink(node, "127.0.0.1", port, lambda _: None, Random(port), None, lambda: hello)  # noqa: S311
        self.powered_s, self.number = 0.0, 0

    def turn(self, now_s: float) -> None:
        self.feed.sockets.read(0)
        if now_s - self.powered_s > POWER_S:
            self.number += 1
            self.powered_s = now_s
            self.link.send(sealed(Report(self.node, "life", now_s, -1, self.number, {}), self.keys, self.node))
        if self.link.is_idle and (report := self.feed.next_report()) is not None:
            self.link.send_bulk(sealed_text(REPORT_KIND, packed(report), self.keys, self.node))


def _clients(pipe: Connection, folder: Path, nodes: Sequence[str], port: int) -> None:
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


def _agent(folder: Path, node: str, port: int, recorder_pid: int) -> "subprocess.Popen[bytes]":
    """An agent as a process, whose process table says that the recorder is its pod's."""
    own = folder / f"{node}-agent"
    (own / "keys").mkdir(parents=True)
    (own / "keys" / "k").write_bytes(KEY)
    shown = own / "proc" / str(recorder_pid)
    shown.mkdir(parents=True)
    (shown / "stat").write_text(f"{recorder_pid} (recorder) S {' '.join(['0'] * 18)} 100 0 0", encoding="ascii")
    scope = f"/kubepods.slice/kubepods-pod{pod_of(node).replace('-', '_')}.slice/cri-containerd-x.scope"
    (shown / "cgroup").write_text(f"0::{scope}\n", encoding="ascii")
    settings = {
        "node": node,
        "backend": "none",
        "controller": {"host": "127.0.0.1", "port": port},
        "keys": str(own / "keys"),
        "record": str(own / "record"),
        "metrics_host": "127.0.0.1",
        "metrics_port": 0,
        "health": {"enabled": True, "folder": str(folder / node), "proc": str(own / "proc")},
    }
    (own / "agent.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    words = [sys.executable, "-m", "nodeagent", "run", "--config", str(own / "agent.yaml")]
    return subprocess.Popen(words, stderr=subprocess.DEVNULL)  # noqa: S603 - our own


# The job: every rank's datagrams, sent by one process to the socket of its node.


def _record(pipe: Connection, setup: _Setup) -> None:
    nodes, pace = setup.nodes, setup.pace
    pipe.recv()
    opened = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) for _ in nodes]
    for sending, node in zip(opened, nodes, strict=True):
        sending.connect(str(setup.folder / node / pod_of(node) / SOCKET))
    dropped: dict[str, int] = {"full": 0}
    for rank, frame in introductions(setup.ranks).items():
        _send(opened[rank // PER_NODE], frame, dropped)
        if rank % 64 == 0:
            time.sleep(0.005)
    time.sleep(LEAD_S)
    began_s, count = clock(), 0
    for tick, frames in enumerate(health_scale.read_job(setup.job)):
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
    made = health_scale.job_of(ranks).introductions()
    order = made.rank.argsort(kind="stable")
    rows, rank = made.rows[order], made.rank[order]
    found = {}
    for each in range(ranks):
        low, high = rank.searchsorted([each, each + 1])
        head = records.header(int(high - low), rank=each, at_ns=0, wall_minus_ns=0, incarnation=0, dropped=0)
        found[each] = head + rows[low:high].tobytes()
    return found


if __name__ == "__main__":
    main()
