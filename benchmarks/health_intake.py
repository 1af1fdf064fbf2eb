"""Health live: frames of many ranks over pods' sockets, agents and the signed link into the controller's analysis.

Every node has its socket, its outbox and its connection, as on a cluster. What is simulated is the job.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from benchmarks.cases import MINUTES, Row, case
from benchmarks.health import write_job
from tests.agents.health_fleet import (
    FLEET,
    LEAD_S,
    PER_NODE,
    SPAWN,
    agent_of,
    introductions,
    pod_of,
    record_job,
    send_reports,
    write_reports,
)
from tests.agents.health_fleet import clients as run_clients
from tests.agents.health_fleet import control as run_controller
from tests.controlplane.processes import cpu_s


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
    with ProcessPoolExecutor(1, mp_context=SPAWN) as other:
        fault_s = other.submit(write_job, setup.ranks, setup.seconds, setup.seed, setup.job).result()
    here, there = SPAWN.Pipe()
    control = SPAWN.Process(target=run_controller, args=(there, setup.nodes, setup.pace))
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
    clients = SPAWN.Process(target=run_clients, args=(clients_end, folder, nodes[agents:], port))
    clients.start()
    with_recorder, recorder_end = SPAWN.Pipe()
    recorder = SPAWN.Process(target=record_job, args=(recorder_end, folder, setup.job, nodes, setup.pace))
    recorder.start()
    processes = [agent_of(folder, node, port, recorder.pid or 0) for node in nodes[:agents]]
    try:
        with_clients.recv()
        connected(len(nodes))
        with_recorder.send("go")
        sent: dict[str, Any] = with_recorder.recv()
        own = [cpu_s(process.pid) for process in processes]
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


@case(
    "health-intake",
    "Records a second, drops and lag of 10,240 ranks' reports through link, intake and analysis.",
    quick={"ranks": 64, "seconds": 6.0, "seeds": (1,)},
    needs=(MINUTES,),
)
@case(
    "health-intake-live",
    "The same through pods' sockets and two agents as processes, at a tenth of the pace.",
    given={"pace": 0.1, "agents": 2, "reports_first": False, "seeds": (1,)},
    quick={"ranks": 64, "seconds": 6.0, "pace": 1.0, "agents": 1},
    needs=(MINUTES,),
)
def health_intake(
    *,
    ranks: int = 10_240,
    seconds: float = 14.0,
    pace: float = 1.0,
    agents: int = 0,
    reports_first: bool = True,
    seeds: Sequence[int] = (1, 2, 3),
) -> Iterator[Row]:
    """A row a seed; a rank becomes slow after four fifths. ranks: a multiple of 64, eight on a node.

    pace: speed at which the job is played. agents: nodes whose agents are processes of their own; the others are the
    same code in one process, without its timer thread. reports_first: make all reports before the job, so that the
    controller gets the cores.
    """
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="h", dir="/tmp") as folder:  # a socket's path has 107 bytes at most
            setup = _Setup(Path(folder), ranks, seconds, pace, agents, seed)
            yield {"seed": seed, **_measured(setup, _reports_sent if reports_first else _frames_sent)}
