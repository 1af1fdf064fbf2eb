"""Schedulers as processes of their own, each with a Lease by which the benchmark says when it may begin."""

import http.client
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import ControlPlaneError
from simulator.controlplane import processes
from simulator.controlplane.accounts import SCHEDULER
from simulator.controlplane.binaries.programs import Programs
from simulator.controlplane.commands import HOST
from simulator.controlplane.folder import SERVER, Folder
from simulator.controlplane.processes import Process
from simulator.controlplane.readiness import is_ready
from simulator.controlplane.server import SOURCES, ControlPlane

READY_WITHIN_S = 120.0
CLIENT_QPS = 5000
"""Requests a second that kube-scheduler's client may send, and its burst. Its own default of 50 would be all that is
measured; this many it never reaches."""


@dataclass(frozen=True, slots=True)
class Running:
    """A scheduler that has seen the cluster and waits for its Lease, or leads."""

    process: Process
    log: Path
    metrics_port: int = 0
    """Of Tonnage; 0: none."""


Start = Callable[[ControlPlane, Programs, Mapping[str, Any]], Running]


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to run a scheduler."""

    name: str
    scheduler: str
    """What pods write in `spec.schedulerName`."""
    lease: tuple[str, str]
    """Namespace and name of the Lease by which its replicas elect a leader."""
    start: Start


def tonnage(server: ControlPlane, programs: Programs, told: Mapping[str, Any]) -> Running:  # noqa: ARG001 - the border's
    """`tonnage operator run` with its defaults, binding pods itself. told: settings besides those."""
    folder = server.folder
    probes, metrics = free_ports(2)
    settings = {
        "kubeconfig": str(server.kubeconfig),
        "host": HOST,
        "probe_port": probes,
        "metrics_port": metrics,
        "log_format": "json",
        "pools": [{"placer": "bind"}],
        **told,
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

    percentageOfNodesToScore is left at its default, by which it looks at 42 % of 1,000 nodes for each pod.
    """

    def start(server: ControlPlane, programs: Programs, told: Mapping[str, Any]) -> Running:  # noqa: ARG001 - the border's
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
"""MostAllocated, GPUs first: what kube-scheduler offers to pack GPUs. All other plugins as they are by default."""

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
    """Ports that nobody listens on; all are held until the last is chosen, so they differ."""
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
    """Raises ControlPlaneError with the end of its log when it ends, or is not ready in time."""
    over_at_s = time.monotonic() + READY_WITHIN_S
    while not is_so():
        if processes.ended_within(process, 0.1) or time.monotonic() > over_at_s:
            processes.stop(process)
            end = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise ControlPlaneError(f"{process.name} did not become ready; its log {log} ends in:\n{end}")
