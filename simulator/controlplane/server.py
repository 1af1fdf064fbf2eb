"""Start and stop of a control plane: `up` completes it from any state, and `down` leaves no process."""

import http.client
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cluster.errors import ControlPlaneError
from simulator.controlplane import commands, processes
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings, Folder, Ports
from simulator.controlplane.processes import Process, ended_within, locked

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
    if name == commands.ETCD:
        return _answers_ok(http.client.HTTPConnection(commands.HOST, ports.etcd, timeout=ANSWER_WITHIN_S), "/readyz")
    if name == commands.NODES:
        return folder.nodes_ready.exists()
    port = {
        commands.API_SERVER: ports.api,
        commands.SCHEDULER: ports.scheduler,
        commands.CONTROLLERS: ports.controllers,
    }[name]
    trust = ssl.create_default_context(cafile=folder.pki / f"{commands.AUTHORITY}.crt")
    connection = http.client.HTTPSConnection(commands.HOST, port, timeout=ANSWER_WITHIN_S, context=trust)
    # The scheduler's /readyz waits for its informers; the controller manager has /healthz alone.
    path = "/healthz" if name == commands.CONTROLLERS else "/readyz"
    return _answers_ok(connection, path, {"Authorization": f"Bearer {commands.token_of(commands.ADMIN, folder)}"})


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


ATTEMPTS = 3
"""A port that was free a moment ago may be taken by another process before ours listens on it."""

PORT_TAKEN = "address already in use"

SOURCES = Path(__file__).parents[2]
"""Path from which the child process of the simulated nodes imports the packages."""

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StartedState:
    """Ports and settings of the last start, stored in the folder."""

    ports: Ports
    settings: ControlPlaneSettings


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Control plane that serves."""

    folder: Folder
    state: StartedState
    started: tuple[str, ...]
    """Processes that this `up` started; empty when all of them ran."""
    missing: Mapping[str, str]
    """Programs that are not available and therefore do not run, with the reason."""
    ready_in_s: float

    @property
    def url(self) -> str:
        return _url(self.state.ports)

    @property
    def kubeconfig(self) -> Path:
        return self.folder.kubeconfig


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """State of one process."""

    name: str
    pid: int
    ready: bool
    memory_bytes: int
    log: Path


def up(
    folder: Folder, settings: ControlPlaneSettings, programs: Programs, on_step: OnStep = lambda _: None
) -> ControlPlane:
    """Serving control plane with these settings: starts missing processes and restarts those with other settings.

    Raises ControlPlaneError with the last lines of a process that fails; then the started ones are stopped again.
    """
    folder.make()
    with locked(folder.lock, on_wait=lambda: on_step("waiting for another command on this folder")):
        began_s = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            running = _running(folder)
            state = StartedState(_ports(folder, running, fresh=attempt > 1), settings)
            try:
                started = _converge(folder, state, programs, running, on_step)
            except ControlPlaneError as error:
                if PORT_TAKEN not in str(error) or attempt == ATTEMPTS:
                    raise
                on_step("a port was taken meanwhile; trying others")
                _stop_all(folder)
            else:
                return ControlPlane(folder, state, started, programs.missing, time.monotonic() - began_s)
    raise AssertionError("the last attempt returns or raises")


def down(folder: Folder, *, delete: bool = False, on_step: OnStep = lambda _: None) -> tuple[str, ...]:
    """Stops all processes and returns their names.

    The cluster's data stays for the next `up` unless `delete` is set.
    """
    if not folder.path.exists():
        return ()
    with locked(folder.lock):
        stopped = _stop_all(folder, on_step)
        if delete:
            # Removes the folder of a control plane, but no other folder that was named by mistake.
            if not folder.state.exists():
                raise ControlPlaneError(f"{folder.path} holds no control plane: not deleted")
            shutil.rmtree(folder.path)
    return stopped


def status(folder: Folder) -> tuple[ProcessStatus, ...]:
    """Running processes."""
    state = state_of(folder)
    return tuple(
        ProcessStatus(
            name,
            process.pid,
            state is not None and is_ready(name, state.ports, folder),
            processes.memory_bytes(process),
            folder.log_of(name),
        )
        for name, process in _running(folder).items()
    )


def state_of(folder: Folder) -> StartedState | None:
    """State of the last `up`; None where there was none."""
    try:
        return msgspec.json.decode(folder.state.read_bytes(), type=StartedState)
    except FileNotFoundError:
        return None


def planned(folder: Folder, settings: ControlPlaneSettings, programs: Programs) -> Mapping[str, Sequence[str | Path]]:
    """Command lines that `up` would run, by process."""
    return commands.commands(settings, _ports(folder, _running(folder), fresh=False), programs, folder)


def _converge(
    folder: Folder, state: StartedState, programs: Programs, running: Mapping[str, Process], on_step: OnStep
) -> tuple[str, ...]:
    """Starts and stops processes to match the settings; after a failure, stops again those that it started."""
    if not running:  # running servers have read their certificate and would not notice a new one
        _write_pki(folder)
    commands.write_accounts(folder, _url(state.ports))
    folder.state.write_bytes(msgspec.json.encode(state))
    wanted = commands.commands(state.settings, state.ports, programs, folder)
    for name in reversed(commands.PROCESSES):
        if name in running and running[name].command != tuple(os.fspath(part) for part in wanted.get(name, ())):
            _stop(running[name], folder, on_step)
    to_start = [name for name in wanted if processes.remembered(name, folder.run) is None]
    with ExitStack() as on_failure:
        # The first two need each other in this order; the later ones start at once.
        for group in (
            [commands.ETCD],
            [commands.API_SERVER],
            [name for name in wanted if name not in (commands.ETCD, commands.API_SERVER)],
        ):
            begun = [_start(name, wanted[name], folder, on_failure) for name in group if name in to_start]
            for process, log_from in begun:
                on_step(f"starting {process.name}")
                wait_until_ready(process, state.ports, folder, log_from)
        on_failure.pop_all()
    return tuple(to_start)


def _write_pki(folder: Folder) -> None:
    try:
        from simulator.controlplane.pki import write_pki
    except ModuleNotFoundError as error:
        remedy = "pip install 'tonnage[controlplane]'"
        raise ControlPlaneError(f"making certificates needs {error.name}, which is not installed: {remedy}") from error
    write_pki(folder.pki, datetime.now(UTC))


def _start(name: str, command: Sequence[str | Path], folder: Folder, on_failure: ExitStack) -> tuple[Process, int]:
    """Started process, and the size of its log before."""
    log = folder.log_of(name)
    log_from = log.stat().st_size if log.exists() else 0
    if name == commands.NODES:
        folder.nodes_ready.unlink(missing_ok=True)
    process = processes.start(name, command, log, {**os.environ, "PYTHONPATH": str(SOURCES)})
    processes.remember(process, folder.run)
    on_failure.callback(_stop, process, folder, lambda _: None)
    return process, log_from


def _stop(process: Process, folder: Folder, on_step: OnStep) -> None:
    on_step(f"stopping {process.name}")
    processes.stop(process)
    processes.forget(process.name, folder.run)


def _stop_all(folder: Folder, on_step: OnStep = lambda _: None) -> tuple[str, ...]:
    """Clients before servers, so that no client complains about a missing server."""
    running = _running(folder)
    stopped = tuple(name for name in reversed(commands.PROCESSES) if name in running)
    for name in stopped:
        _stop(running[name], folder, on_step)
    return stopped


def _running(folder: Folder) -> dict[str, Process]:
    found = {name: processes.remembered(name, folder.run) for name in commands.PROCESSES}
    return {name: process for name, process in found.items() if process is not None}


def _ports(folder: Folder, running: Mapping[str, Process], *, fresh: bool) -> Ports:
    """Ports of the last start, so that a kubeconfig stays valid, unless other processes have them now."""
    before = state_of(folder)
    if before is not None and not fresh and (running or all(map(_is_free, astuple(before.ports)))):
        return before.ports
    with ExitStack() as held:
        # All are held until the last is chosen: otherwise the same one could be given twice.
        sockets = [held.enter_context(socket.socket()) for _ in fields(Ports)]
        for each in sockets:
            each.bind((commands.HOST, 0))
        return Ports(*(each.getsockname()[1] for each in sockets))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port whose last connection has just been closed is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((commands.HOST, port))
        except OSError:
            return False
    return True


def _url(ports: Ports) -> str:
    return f"https://{commands.HOST}:{ports.api}"
