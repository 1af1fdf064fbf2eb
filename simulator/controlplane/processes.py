"""Processes that outlive the command that started them, identified by pid and start time.

A pid alone is not an identity: the kernel reuses it, so an outdated pid file may name a stranger's process. The start
time and the boot are therefore stored with it, and signals go through a pidfd, which cannot come to mean another
process between the check and the signal.
"""

import fcntl
import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cluster.errors import ControlPlaneError

STOP_WITHIN_S = 10.0
"""Time until SIGKILL. etcd and kube-apiserver need well under a second when no client watches."""


@dataclass(frozen=True, slots=True)
class Process:
    """Process that this module started."""

    name: str
    pid: int
    started_ticks: int
    """Clock ticks between the boot and its start: /proc/PID/stat, field 22."""
    boot: str
    """Id of the boot from which these ticks count."""
    command: tuple[str, ...] = ()


def start(name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Starts a process in a session of its own, its output appended to `log`. Raises ControlPlaneError."""
    quiet = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    out = (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    argv = [os.fspath(part) for part in command]
    actions = [quiet, out, (os.POSIX_SPAWN_DUP2, 1, 2)]
    variables = os.environ if environment is None else environment
    try:
        pid = os.posix_spawn(argv[0], argv, variables, file_actions=actions, setsid=True)
    except OSError as error:
        raise ControlPlaneError(f"starting {name}: {argv[0]}: {error.strerror}") from error
    return process_with(name, pid, tuple(argv))


def process_with(name: str, pid: int, command: tuple[str, ...] = ()) -> Process:
    """Running process of this number. Raises ControlPlaneError when there is none."""
    ticks = _started_ticks(pid)
    if ticks is None:
        raise ControlPlaneError(f"looking for {name}: process {pid} is not in /proc")
    return Process(name, pid, ticks, _boot(), command)


def is_running(process: Process) -> bool:
    with _opened(process) as pidfd:
        return pidfd is not None


def ended_within(process: Process, within_s: float) -> bool:
    """Whether it ends in that time; returns as soon as it does."""
    with _opened(process) as pidfd:
        return pidfd is None or _ends(pidfd, within_s)


def stop(process: Process, within_s: float = STOP_WITHIN_S) -> None:
    """Asks it to end, and kills it when it does not. Does nothing when it is gone already."""
    with _opened(process) as pidfd:
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            if not _ends(pidfd, within_s):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                _ends(pidfd, STOP_WITHIN_S)
    # Where this process is its parent, a dead child would stay in the process table.
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def memory_bytes(process: Process) -> int:
    """Resident memory; 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def remember(process: Process, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{process.name}.unfinished"
    unfinished.write_bytes(msgspec.json.encode(process))
    unfinished.rename(_file(process.name, folder))


def remembered(name: str, folder: Path) -> Process | None:
    """Recorded process of that name, if it still runs."""
    try:
        process = msgspec.json.decode(_file(name, folder).read_bytes(), type=Process)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return process if is_running(process) else None


def forget(name: str, folder: Path) -> None:
    _file(name, folder).unlink(missing_ok=True)


def _file(name: str, folder: Path) -> Path:
    return folder / f"{name}.json"


@contextmanager
def _opened(process: Process) -> Iterator[int | None]:
    """Pidfd of this very process while it runs, else None."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except (ProcessLookupError, OverflowError):
        yield None
        return
    try:
        is_same = (_started_ticks(process.pid), _boot()) == (process.started_ticks, process.boot)
        yield pidfd if is_same and not _ends(pidfd, 0) else None
    finally:
        os.close(pidfd)


def _ends(pidfd: int, within_s: float) -> bool:
    """Whether it ends in time. A pidfd becomes readable when its process ends, reaped or not."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def _started_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the name in brackets, which may hold blanks and brackets: count from the last bracket.
    return int(stat.rpartition(")")[2].split()[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Holds the lock while the context lasts. `on_wait` is called once when another process holds it.

    Yields the descriptor: a child process that inherits it keeps the lock, even when its parent is killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
