"""Guest with a kernel of its own: boots in about two seconds, sees this machine's files read-only, runs Python code."""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import GuestError
from simulator.kernel.packages import kernel_program

ROOT = Path(__file__).parents[2]
"""Folder from which the guest imports our code."""

BOOT_WITHIN_S = 180.0
CALL_WITHIN_S = 300.0
OFF_WITHIN_S = 10.0
"""Bounds of what never ends: a hundred times what a quiet machine takes, so that a busy one does not meet them."""

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
"""Folder of the file that is the guest's memory: on a disk it would be written back all the time."""

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1

LAST_LINES = 15
"""Number of the kernel log's last lines in the message of a failure."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a call in the guest."""

    exit_code: int
    """Negative: the signal that ended it."""
    value: Any
    """Return value of the called function, decoded from JSON."""
    stdout: str
    stderr: str


class Guest:
    """Running guest. Not for several threads."""

    def __init__(self, process: subprocess.Popen[bytes], requests: int, answers: int, log: Path) -> None:
        self._process = process
        self._requests = requests
        self._answers = answers
        self._log = log
        self._pending = b""
        self._number = 0

    def run(self, source: str, *, within_s: float = CALL_WITHIN_S) -> Outcome:
        """Runs Python code to its end. Raises GuestError where the guest ends or the time is up."""
        return self._call({"source": source}, within_s)

    def call(self, function: str, *arguments: Any, within_s: float = CALL_WITHIN_S) -> Any:
        """Return value of a function, named `module:function`, in the guest; both ways through JSON.

        Raises GuestError with its traceback where it fails.
        """
        outcome = self._call({"function": function, "arguments": arguments}, within_s)
        if outcome.exit_code:
            raise GuestError(f"{function} in the guest: exit code {outcome.exit_code}\n{outcome.stderr}")
        return outcome.value

    def wait_until_ready(self, within_s: float = BOOT_WITHIN_S) -> None:
        self._read(time.monotonic() + within_s, "booting")

    def power_off(self) -> None:
        """Ends the guest; kills it where it does not end."""
        with contextlib.suppress(OSError):
            os.write(self._requests, b"power off\n")
        os.close(self._requests)
        try:
            self._process.wait(OFF_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)

    def _call(self, request: dict[str, Any], within_s: float) -> Outcome:
        self._number += 1
        # The serial line drops what does not fit its 4 KiB, so that it carries only the name of the request's file.
        file = self._log.with_name(f"request-{self._number}")
        file.write_text(json.dumps({"number": self._number, **request}), encoding="utf-8")
        with contextlib.suppress(BrokenPipeError):  # a dead guest's log is reported by the read that follows
            os.write(self._requests, f"{file}\n".encode())
        answer = self._read(time.monotonic() + within_s, str(request.get("function", "a program")))
        while answer["number"] != self._number:  # that of an earlier call, which nothing waits for any more
            answer = self._read(time.monotonic() + within_s, str(request.get("function", "a program")))
        return Outcome(answer["exit_code"], answer["value"], answer["stdout"], answer["stderr"])

    def _read(self, deadline_s: float, waiting_for: str) -> dict[str, Any]:
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline_s - time.monotonic()))
            chunk = os.read(self._answers, 1 << 20) if ready else b""
            if not chunk:
                why = "the guest ended" if ready else "time is up"
                raise GuestError(f"{waiting_for}: {why}; end of the kernel's log:\n{self._last_lines()}")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:])


@contextlib.contextmanager
def booted(*, memory_mib: int = 1024) -> Iterator[Guest]:
    """Guest for as long as the context lasts. Raises GuestError where it cannot be had or does not boot."""
    program = kernel_program()
    with tempfile.TemporaryDirectory(prefix="tonnage-guest-") as folder:
        guest = _start(program, Path(folder) / "kernel.log", memory_mib)
        try:
            guest.wait_until_ready()
            yield guest
        finally:
            guest.power_off()


def _start(program: Path, log: Path, memory_mib: int) -> Guest:
    request_end, requests = os.pipe()
    answers, answer_end = os.pipe()
    command = [str(program), *_kernel_words(memory_mib, request_end, answer_end)]
    environment = {"PATH": os.defpath, "HOME": str(log.parent), "TMPDIR": str(_memory_folder())}
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,
            pass_fds=(request_end, answer_end),
            preexec_fn=_die_with_parent,
        )
    os.close(request_end)
    os.close(answer_end)
    return Guest(process, requests, answers, log)


def _die_with_parent() -> None:
    """Has the guest killed with this process, however that ends: it would wait for requests for ever."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kernel_words(memory_mib: int, requests: int, answers: int) -> list[str]:
    """Kernel command line. Words of the form NAME=value that the kernel does not know are init's environment."""
    machine = [f"mem={memory_mib}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"]
    lines = ["con=null", "con0=null,fd:1", f"ssl0=fd:{requests},fd:{answers}", "quiet", "loglevel=4", "panic=-1"]
    program = [f"init={sys.executable}", f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1"]
    return [*machine, *lines, *program, "--", "-m", "simulator.kernel.guest_init"]


def _memory_folder() -> Path:
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
