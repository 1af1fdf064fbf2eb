"""Waits until a process of a control plane serves, and reports why it does not."""

import http.client
import ssl
import time
from pathlib import Path

from cluster.errors import ControlPlaneError
from simulator.controlplane.accounts import ADMIN, CONTROLLERS, NODES, SCHEDULER, token_of
from simulator.controlplane.commands import API_SERVER, ETCD, HOST, Ports
from simulator.controlplane.folder import AUTHORITY, Folder
from simulator.controlplane.processes import Process, ended_within

READY_WITHIN_S = 300.0
"""Some seconds are usual. With both cores busy it took 100 s; a process that dies is noticed at once."""

LOOK_EVERY_S = 0.05

ANSWER_WITHIN_S = 5.0

LAST_LINES = 12


def wait_until_ready(process: Process, ports: Ports, folder: Folder, log_from: int) -> None:
    """Returns once the process serves. Raises ControlPlaneError with its last lines when it ends or takes too long.

    log_from: size of its log when it was started; earlier lines are from a previous run.
    """
    deadline_s = time.monotonic() + READY_WITHIN_S
    while not is_ready(process.name, ports, folder):
        log = folder.log_of(process.name)
        if ended_within(process, LOOK_EVERY_S):
            raise ControlPlaneError(f"{process.name} ended at startup:\n{last_lines(log, log_from)}")
        if time.monotonic() > deadline_s:
            why = f"{process.name} was not ready in {READY_WITHIN_S:.0f} s; its log {log} ends in"
            raise ControlPlaneError(f"{why}:\n{last_lines(log, log_from)}")


def is_ready(name: str, ports: Ports, folder: Folder) -> bool:
    """Whether the process of that name serves now."""
    if name == ETCD:
        return _answers_ok(http.client.HTTPConnection(HOST, ports.etcd, timeout=ANSWER_WITHIN_S), "/readyz")
    if name == NODES:
        return folder.nodes_ready.exists()
    port = {API_SERVER: ports.api, SCHEDULER: ports.scheduler, CONTROLLERS: ports.controllers}[name]
    trust = ssl.create_default_context(cafile=folder.pki / f"{AUTHORITY}.crt")
    connection = http.client.HTTPSConnection(HOST, port, timeout=ANSWER_WITHIN_S, context=trust)
    # The scheduler's /readyz waits for its informers; the controller manager has /healthz alone.
    path = "/healthz" if name == CONTROLLERS else "/readyz"
    return _answers_ok(connection, path, {"Authorization": f"Bearer {token_of(ADMIN, folder)}"})


def _answers_ok(connection: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None) -> bool:
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def last_lines(log: Path, log_from: int = 0) -> str:
    """End of a log, which mostly shows why its process died."""
    try:
        with log.open("rb") as file:
            file.seek(log_from)
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    last = [line for line in lines if line.strip()][-LAST_LINES:]
    return "\n".join(f"  {line}" for line in last) or "  (it wrote nothing)"
