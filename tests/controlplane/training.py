"""A real training job on simulated pods: a process per rank, which lives as long as its pod does.

What a kubelet, a container runtime and node agents would do: processes start when all pods of the gang run, and are
killed with their pods; each node's sockets and evidence are those of the real agent.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from health.records.frames import HealthReport
from nodeagent.health.feed import HealthFeed
from nodeagent.health.pod_sockets import SOCKET, Deliver, PodSockets
from nodeagent.health.processes import NodeProcess, ProcessTable, Ranks, Senders
from tests.controlplane.plain_api import PlainApi
from tests.controlplane.training_rank import last_complete

ROOT = Path(__file__).parents[2]
TURN_S = 0.02
LOOK_S = 0.2


class TiedProcesses:
    """The kernel's table of processes, with the pod that each rank's process is tied to instead of its cgroup's."""

    def __init__(self) -> None:
        self.pods: dict[int, str] = {}
        self._kernel = ProcessTable()

    def look(self, pid: int) -> NodeProcess | None:
        found = self._kernel.look(pid)
        return replace(found, pod=self.pods.get(pid, "")) if found is not None else None


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank while its pod lives."""

    uid: str
    node: str
    process: subprocess.Popen[bytes]


@dataclass
class Training:
    """The job's processes and the health feeds of the nodes, in a thread of its own."""

    api: PlainApi
    gang: str
    ranks: int
    folder: Path
    report: Callable[[HealthReport], None]
    backend: str = "sockets"
    runs: list[dict[int, Rank]] = field(default_factory=list)
    """Ranks of each run."""
    _feeds: dict[str, HealthFeed] = field(default_factory=dict)
    _processes: TiedProcesses = field(default_factory=TiedProcesses)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.saves = self.folder / "saves"
        self.saves.mkdir(parents=True)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def saved(self) -> int:
        """Step of the last complete checkpoint."""
        return last_complete(self.saves)

    def hang_on(self, node: str) -> None:
        """From its next checkpoint on, a rank on this node enters nothing more."""
        (self.folder / f"hang-{node}").touch()

    def restored_from(self, run: int) -> int:
        """Step that all ranks of a run went on from; -1 until all have said so."""
        logs = [self.folder / f"{run}-{rank}.json" for rank in range(self.ranks)]
        found = {json.loads(each.read_text(encoding="utf-8"))["from"] if each.exists() else -1 for each in logs}
        return found.pop() if len(found) == 1 else -1

    def complaints(self) -> str:
        """Ranks that ended, and the last line that each rank wrote to standard error."""
        ended = {number: rank.process.poll() for run in self.runs for number, rank in run.items()}
        lines = {each.stem: each.read_text(errors="replace").splitlines()[-1:] for each in self.folder.glob("*.err")}
        return f"{len(self.runs)} runs, ended: {ended}, said: {lines}"

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        for run in self.runs:
            for rank in run.values():
                rank.process.kill()
                rank.process.wait()
        for feed in self._feeds.values():
            feed.close()

    def _live(self) -> None:
        looked_s = 0.0
        while not self._stop.wait(TURN_S):
            for feed in self._feeds.values():
                feed.turn(0.0)
                if (found := feed.next_report()) is not None:
                    self.report(found)
            if time.monotonic() - looked_s >= LOOK_S:
                self._follow_pods()
                looked_s = time.monotonic()

    def _follow_pods(self) -> None:
        answer = self.api.send(
            "GET", "/api/v1/namespaces/default/pods", query={"labelSelector": f"tonnage.dev/gang={self.gang}"}
        )
        pods = {each["metadata"]["uid"]: each for each in answer.body["items"] if _runs(each)}
        for rank in self.runs[-1].values() if self.runs else ():
            if rank.uid not in pods and rank.process.poll() is None:
                rank.process.kill()
                rank.process.wait()
        known = {rank.uid for run in self.runs for rank in run.values()}
        if len(pods) == self.ranks and not known & pods.keys():
            self._start(list(pods.values()))

    def _start(self, pods: list[dict[str, Any]]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        started = {}
        for pod in pods:
            number = int(pod["metadata"]["name"].rpartition("-")[2])
            started[number] = self._rank(number, pod["metadata"]["uid"], pod["spec"]["nodeName"], port)
        self.runs.append(started)

    def _rank(self, number: int, uid: str, node: str, port: int) -> Rank:
        sockets = self.folder / node
        (sockets / uid).mkdir(parents=True)
        if node not in self._feeds:
            self._feeds[node] = self._feed(node, sockets)
        given = {
            "rank": number,
            "ranks": self.ranks,
            "port": port,
            "backend": self.backend,
            "socket": str(sockets / uid / SOCKET),
            "saves": str(self.saves),
            "hang": str(self.folder / f"hang-{node}"),
            "log": str(self.folder / f"{len(self.runs)}-{number}.json"),
        }
        command = [sys.executable, "-m", "tests.controlplane.training_rank", json.dumps(given)]
        with (self.folder / f"{len(self.runs)}-{number}.err").open("wb") as errors:
            process = subprocess.Popen(command, cwd=ROOT, stderr=errors)  # noqa: S603
        self._processes.pods[process.pid] = uid
        return Rank(uid, node, process)

    def _feed(self, node: str, sockets: Path) -> HealthFeed:
        def opened(deliver: Deliver) -> PodSockets:
            return PodSockets(sockets, Senders(self._processes, time.monotonic), deliver, time.monotonic)

        return HealthFeed(node, "life", opened, Ranks(self._processes), (), time.monotonic)


def _runs(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
