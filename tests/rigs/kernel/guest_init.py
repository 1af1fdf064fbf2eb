"""First process of a guest: mounts what tests need, runs the calls that arrive on the line, powers off.

Every call runs in a forked child of this process, which has Python loaded already: a call costs a fork, and no start
of an interpreter.
"""

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import sys
import tempfile
import termios
import traceback
import tty
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LINE = os.environ.get("TONNAGE_LINE")
"""Device of calls and answers on an emulated machine, whose devices are those of its kernel."""
SERIAL = "/dev/ttyS0"
"""That of User-Mode Linux."""
POWER_OFF = 0x4321FEDC
"""LINUX_REBOOT_CMD_POWER_OFF of reboot(2)."""

MOUNTS = (
    ("proc", "/proc", "proc", None),
    ("sysfs", "/sys", "sysfs", None),
    ("tmpfs", "/dev/shm", "tmpfs", None),  # noqa: S108
    ("tmpfs", "/run", "tmpfs", None),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2", "nsdelegate"),
)
CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
"""Those of them that the kernel has."""

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Running:
    """Call that runs in a child."""

    number: int
    stdout: Path
    stderr: Path
    value: Path


def main() -> None:
    devices = (("dev", "/dev", "devtmpfs", None),) if LINE else ()
    for source, target, kind, options in (*devices, *MOUNTS):
        Path(target).mkdir(exist_ok=True)
        data = options.encode() if options else None
        if libc.mount(source.encode(), target.encode(), kind.encode(), 0, data):
            raise OSError(ctypes.get_errno(), f"mounting {target}")
    root = Path("/sys/fs/cgroup")
    here = (root / "cgroup.controllers").read_text(encoding="ascii").split()
    words = " ".join(f"+{one}" for one in CONTROLLERS if one in here)
    (root / "cgroup.subtree_control").write_text(words, encoding="ascii")
    os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"  # noqa: S108
    os.environ["PATH"] = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    line = os.open(LINE or SERIAL, os.O_RDWR | os.O_NOCTTY)
    if os.isatty(line):
        tty.setraw(line, termios.TCSANOW)
    try:
        _serve(line)
    finally:
        libc.reboot(POWER_OFF)


def _serve(line: int) -> None:
    """Answers calls until the line ends. Orphans of earlier calls are reaped meanwhile, as an init must."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(line, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    running: dict[int, Running] = {}
    pending = b""
    _write(line, {"ready": True})
    while True:
        for key, _ in selector.select():
            if key.fd == woken:
                with contextlib.suppress(BlockingIOError):
                    while os.read(woken, 4096):
                        pass
                continue
            chunk = os.read(line, 65536)
            if not chunk:
                return
            *requests, pending = (pending + chunk).split(b"\n")
            for request in filter(None, requests):
                if request == b"power off":
                    return
                pid, record = _start(json.loads(Path(os.fsdecode(request)).read_text(encoding="utf-8")))
                running[pid] = record
        # Ended children since the last look, with their wait status.
        ended = []
        with contextlib.suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                ended.append(child)
        for pid, status in ended:
            if pid in running:
                _write(line, _answer(running.pop(pid), os.waitstatus_to_exitcode(status)))


def _start(call: dict[str, Any]) -> tuple[int, Running]:
    folder = Path(tempfile.mkdtemp(prefix="call-"))
    record = Running(call["number"], folder / "stdout", folder / "stderr", folder / "value")
    if "function" in call:
        # Imported here once, every later child has it; a failure is reported by the child, which tries again.
        with contextlib.suppress(Exception):
            importlib.import_module(call["function"].partition(":")[0])
    pid = os.fork()
    if pid:
        return pid, record
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(os.open(record.stdout, flags, 0o600), 1)
        os.dup2(os.open(record.stderr, flags, 0o600), 2)
        _run(call, record)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - reported to the caller, whatever it was
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(call: dict[str, Any], record: Running) -> None:
    if "source" in call:
        exec(compile(call["source"], "<guest>", "exec"), {"__name__": "__main__"})  # noqa: S102
        return
    module, _, name = call["function"].partition(":")
    value = getattr(importlib.import_module(module), name)(*call["arguments"])
    record.value.write_text(json.dumps(value), encoding="utf-8")


def _answer(record: Running, exit_code: int) -> dict[str, Any]:
    value = record.value.read_text(encoding="utf-8") if record.value.exists() else "null"
    texts = {name: getattr(record, name).read_text(errors="replace") for name in ("stdout", "stderr")}
    return {"number": record.number, "exit_code": exit_code, "value": json.loads(value), **texts}


def _write(line: int, answer: dict[str, Any]) -> None:
    content = json.dumps(answer).encode() + b"\n"
    while content:
        content = content[os.write(line, content) :]


if __name__ == "__main__":
    main()
