"""Schedulers as processes on an API server, each with a Lease by which it is told when it may begin."""

import http.client
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cluster.errors import ControlPlaneError
from simulator.controlplane import processes
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import HOST, SCHEDULER, SERVER, Folder
from simulator.controlplane.processes import Process
from simulator.controlplane.server import SOURCES, ControlPlane, is_ready

READY_WITHIN_S = 120.0
CLIENT_QPS = 5000
"""Client QPS and burst of kube-scheduler. Its default of 50 would limit the measurement; it never reaches this
value."""


@dataclass(frozen=True, slots=True)
class Running:
    """Scheduler that has observed the cluster and waits for its Lease, or leads."""

    process: Process
    log: Path
    metrics_port: int = 0
    """Port of Tonnage's metrics; 0: none."""


Start = Callable[[ControlPlane, Programs], Running]


@dataclass(frozen=True, slots=True)
class Contender:
    """Scheduler with its configuration."""

    name: str
    scheduler: str
    """`spec.schedulerName` of its pods."""
    lease: tuple[str, str]
    """Namespace and name of the Lease by which its replicas elect a leader."""
    start: Start


def tonnage(server: ControlPlane, programs: Programs) -> Running:
    """Start `tonnage operator run` with its defaults and the placement mode `bind`."""
    folder = server.folder
    probes, metrics = free_ports(2)
    settings = {
        "kubeconfig": str(server.kubeconfig),
        "host": HOST,
        "probe_port": probes,
        "metrics_port": metrics,
        "log_format": "json",
        "pools": [{"placer": "bind"}],
    }
    config = folder.path / "operator.yaml"
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [sys.executable, "-m", "cli.main", "operator", "run", "--config", str(config)]
    log = fresh_log(folder, "operator")
    process = processes.start("operator", command, log, {**os.environ, "PYTHONPATH": str(SOURCES)})
    wait_until(lambda: says_ok(probes, "/readyz"), process, log)
    return Running(process, log, metrics)


def kube_scheduler(profile: Mapping[str, Any]) -> Start:
    """The kube-scheduler of the control plane's release with one profile.

    percentageOfNodesToScore has its default, with which it considers 42 % of 1,000 nodes for each pod.
    """

    def start(server: ControlPlane, programs: Programs) -> Running:
        folder, port = server.folder, server.state.ports.scheduler
        account = folder.kubeconfig_of(SCHEDULER)
        config = folder.path / "kube-scheduler.yaml"
        config.write_text(yaml.safe_dump(scheduler_config(account, profile)), encoding="utf-8")
        command: list[str | Path] = [
            programs["kube-scheduler"],
            f"--config={config}",
            *(f"--{role}-kubeconfig={account}" for role in ("authentication", "authorization")),
            f"--bind-address={HOST}",
            f"--secure-port={port}",
            f"--tls-cert-file={folder.pki / SERVER}.crt",
            f"--tls-private-key-file={folder.pki / SERVER}.key",
        ]
        log = fresh_log(folder, SCHEDULER)
        process = processes.start(SCHEDULER, command, log)
        wait_until(lambda: is_ready(SCHEDULER, server.state.ports, folder), process, log)
        return Running(process, log)

    return start


def scheduler_config(account: Path, profile: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(account), "qps": CLIENT_QPS, "burst": CLIENT_QPS},
        "leaderElection": {
            "leaderElect": True,
            "resourceNamespace": KUBE_LEASE[0],
            "resourceName": KUBE_LEASE[1],
            "leaseDuration": "15s",
            "renewDeadline": "10s",
            "retryPeriod": "2s",
        },
        "profiles": [{"schedulerName": "default-scheduler", **profile}],
    }


BIN_PACKING = {
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "nvidia.com/gpu", "weight": 10}, {"name": "cpu", "weight": 1}],
                }
            },
        }
    ]
}
"""Profile with MostAllocated, GPUs first: kube-scheduler's own way to pack GPUs. Other plugins have their defaults."""
KUBE_LEASE = ("kube-system", "kube-scheduler")
CONTENDERS = {
    each.name: each
    for each in (
        Contender("tonnage", "tonnage", ("tonnage-system", "tonnage"), tonnage),
        Contender("kube-scheduler", "default-scheduler", KUBE_LEASE, kube_scheduler({})),
        Contender("kube-scheduler, bin packing", "default-scheduler", KUBE_LEASE, kube_scheduler(BIN_PACKING)),
    )
}


def fresh_log(folder: Folder, name: str) -> Path:
    log = folder.log_of(name)
    log.unlink(missing_ok=True)
    return log


def free_ports(count: int) -> list[int]:
    """Free ports; all are held open until the last is chosen, so they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def says_ok(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def wait_until(is_so: Callable[[], bool], process: Process, log: Path) -> None:
    """Wait for readiness. Raises ControlPlaneError with the end of the log when the process ends or times out."""
    over_at_s = time.monotonic() + READY_WITHIN_S
    while not is_so():
        if processes.ended_within(process, 0.1) or time.monotonic() > over_at_s:
            processes.stop(process)
            end = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise ControlPlaneError(f"{process.name} did not become ready; its log {log} ends in:\n{end}")


def cycles(running: Running) -> list[float]:
    """Duration of each cycle, the sum of its stages, from the operator's log, seconds."""
    took_s = []
    for line in running.log.read_bytes().splitlines():
        if b'"cycle done"' in line:
            said = msgspec.json.decode(line)
            took_s.append(sum(value for key, value in said.items() if key.endswith("_s")))
    return took_s
