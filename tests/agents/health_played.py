"""A job's records on their way to a controller: through pods' sockets and live agents, or as reports made before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from tests.agents.health_fleet import (
    LEAD_S,
    PER_NODE,
    SPAWN,
    agent_of,
    clients as run_clients,
    introductions,
    pod_of,
    record_job,
    send_reports,
    write_reports,
)
from tests.controlplane.processes import cpu_s


@dataclass(frozen=True, slots=True)
class PlayedSetup:
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
class SentRecords:
    """What left for the controller."""

    began_s: float
    took_s: float
    records: int
    counts: Mapping[str, object]


Play = Callable[[PlayedSetup, int, Callable[[int], None]], SentRecords]
"""Connects all nodes to a port, calls a function that waits for so many nodes' first reports, and plays the job."""


def frames_sent(setup: PlayedSetup, port: int, connected: Callable[[int], None]) -> SentRecords:
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
            ended(each)
    nodes_us = carried["cpu_s"] / max(sent["records"], 1) * 1e6 * len(nodes) / max(len(nodes) - agents, 1)
    counts = {
        "dropped_by_recorders": sent["dropped"],
        "dropped_on_nodes": carried["dropped"],
        "cpu_us_per_record_nodes": round(nodes_us, 3),
        "cpu_share_of_an_agent": [round(each / sent["took_s"], 3) for each in own],
    }
    return SentRecords(sent["began_s"], sent["took_s"], sent["records"], counts)


def reports_sent(setup: PlayedSetup, port: int, connected: Callable[[int], None]) -> SentRecords:
    """Reports that the agents' code made before, sent at their instants."""
    path = setup.folder / "reports"
    first_s = LEAD_S * setup.pace  # the lead is no part of the job, whatever its pace
    records = write_reports(path, setup.job, introductions(setup.ranks), setup.nodes, first_s)
    pipe, end = SPAWN.Pipe()
    senders = SPAWN.Process(target=send_reports, args=(end, path, setup.nodes, port, setup.pace))
    senders.start()
    try:
        pipe.recv()
        connected(0)
        pipe.send("go")
        sent: dict[str, Any] = pipe.recv()
    finally:
        ended(senders)
    counts = {
        "reports_unsent": sent["unsent"],
        "latest_report_s": round(sent["latest_s"], 2),
        "cpu_share_of_sending": round(sent["cpu_s"] / sent["took_s"], 2),
    }
    return SentRecords(sent["began_s"] + LEAD_S, sent["took_s"] - LEAD_S, records, counts)


def ended(process: SpawnProcess) -> None:
    process.join(5.0)
    if process.is_alive():
        process.terminate()
