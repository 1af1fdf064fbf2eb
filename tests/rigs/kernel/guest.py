"""Guest with a kernel of its own: User-Mode Linux, booted within two seconds, or an emulated machine, within ten.

It sees this machine's files read-only and runs Python code.

The emulated machine is QEMU with Debian 13's cloud kernel: two CPUs, pressure stall information
(PSI) and cpusets. The programs are started through their own C library's loader; nothing is installed. The guest's root
is this machine's, read-only, over virtiofs, which the kernel has built in, so that it needs no initial RAM disk.
"""

import contextlib
import ctypes
import json
import os
import platform
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cluster.errors import GuestError
from simulator.controlplane.processes import locked
from tests.rigs.kernel.packages import Package, archives_of, fetched, folder_of, kernel_program, unpack

PINS = Path(__file__).with_name("debian13.sha256")
"""Packages, a checksum and a path in Debian's archive a line: QEMU, virtiofsd, the kernel, and what those need."""

LINE = "/dev/vport1p1"
"""Virtio-serial port in the guest that carries calls and answers."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """Unpacked programs."""

    folder: Path

    def file_server(self, listener: int) -> list[str]:
        """Command that serves this machine's files, read-only, to the one client of the listening socket."""
        options = ["--fd", str(listener), "--shared-dir", "/", "--readonly", "--sandbox", "none", "--seccomp", "none"]
        return [*self._run("usr/libexec/virtiofsd"), *options, "--cache", "auto", "--log-level", "error"]

    def machine(self, memory_mib: int, files: Path, line: int, log: Path, words: list[str]) -> list[str]:
        """Command of a machine with two CPUs.

        files: socket of the file server; line: connected socket of calls and answers; log: of the kernel's console;
        words: the kernel's command line.
        """
        share = self.folder / "usr/share"
        cpu = ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-M", "q35,memory-backend=memory"]
        # The file server reads and writes the guest's memory, so that it must be shared.
        memory = ["-m", f"{memory_mib}M", "-object", f"memory-backend-memfd,id=memory,size={memory_mib}M,share=on"]
        root = [f"socket,id=files,path={files}", "-device", "vhost-user-fs-pci,chardev=files,tag=root,queue-size=1024"]
        port = ["-device", "virtio-serial-pci", "-chardev", f"socket,id=line,fd={line}"]
        port += ["-device", "virtserialport,chardev=line", "-device", "virtio-rng-pci"]
        console = ["-chardev", f"file,id=console,path={log}", "-device", "isa-serial,chardev=console"]
        kernel = ["-kernel", str(next((self.folder / "boot").glob("vmlinuz-*"))), "-append", " ".join(words)]
        bare = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        firmware = ["-L", str(share / "qemu"), "-L", str(share / "seabios")]
        program = self._run("usr/bin/qemu-system-x86_64")
        return [*program, *firmware, *cpu, *memory, *bare, "-chardev", *root, *port, *console, *kernel]

    def words(self, *program: str) -> list[str]:
        """Kernel command line: fewest checks at start, since each takes ten times as long as on a real machine."""
        root = ["root=root", "rootfstype=virtiofs", "ro", "console=ttyS0", "quiet", "loglevel=4", "panic=-1", "psi=1"]
        haste = ["tsc=reliable", "no_timer_check", "cryptomgr.notests", "mitigations=off", "random.trust_cpu=on"]
        modules = ["audit=0", "selinux=0", "apparmor=0"]
        return [*root, *haste, *modules, f"init={sys.executable}", f"TONNAGE_LINE={LINE}", *program]

    def _run(self, program: str) -> list[str]:
        loader = self.folder / "usr/lib64/ld-linux-x86-64.so.2"
        return [
            str(loader),
            "--library-path",
            str(self.folder / "usr/lib/x86_64-linux-gnu"),
            str(self.folder / program),
        ]


def emulator(environment: Mapping[str, str] = os.environ) -> Emulator:
    """Emulator, fetched where the cache has none: 63 MB. Raises GuestError with the reason."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise GuestError(f"the emulator is pinned for Linux and x86_64, not {platform.system()} {platform.machine()}")
    folder = folder_of("qemu", PINS.read_text(encoding="ascii"), environment)
    try:
        with locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.exists():
                # Unpacks all beside the folder, which then appears complete.
                unfinished = folder.with_name(f".{folder.name}.unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir(parents=True)
                for package in pinned():
                    unpack(fetched(package, archives_of(environment)), unfinished, only=package.folder)
                unfinished.rename(folder)
    except OSError as error:
        raise GuestError(f"making the emulator in {folder}: {error}") from error
    return Emulator(folder)


def pinned() -> tuple[Package, ...]:
    lines = (line.split() for line in PINS.read_text(encoding="ascii").splitlines())
    return tuple(Package(path, sha256, "boot/" if "/linux-image-" in path else "usr/") for sha256, path in lines)


Kernel = Literal["uml", "emulated"]
"""User-Mode Linux: one CPU. Emulated: ten times slower, with two CPUs, PSI and cpusets."""

ROOT = Path(__file__).parents[3]
"""Folder from which the guest imports our code."""

BOOT_WITHIN_S = 600.0
CALL_WITHIN_S = 300.0
OFF_WITHIN_S = 10.0
"""Bounds of what never ends: a hundred times what a quiet machine takes, so that a busy one does not meet them."""

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
"""Folder of the file that is the guest's memory: on a disk it would be written back all the time."""

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1

INIT = (f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1", "--", "-m", "tests.rigs.kernel.guest_init")
"""Last words of the kernel's command line. Those of the form NAME=value that it does not know reach init."""

LAST_LINES = 15
"""Number of the kernel log's last lines in the message of a failure."""


@dataclass(frozen=True, slots=True)
class GuestOutcome:
    """Result of a call in the guest."""

    exit_code: int
    """Negative: the signal that ended it."""
    value: Any
    """Return value of the called function, decoded from JSON."""
    stdout: str
    stderr: str


class Guest:
    """Running guest. Not for several threads."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], requests: int, answers: int, log: Path) -> None:
        """processes: that of the kernel, and those that serve it and end with it."""
        self._processes = processes
        self._requests = requests
        self._answers = answers
        self._log = log
        self._pending = b""
        self._number = 0

    def run(self, source: str, *, within_s: float = CALL_WITHIN_S) -> GuestOutcome:
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
        for process in self._processes:
            try:
                process.wait(OFF_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(self._answers)

    def _call(self, request: dict[str, Any], within_s: float) -> GuestOutcome:
        self._number += 1
        # The serial line drops what does not fit its 4 KiB, so that it carries only the name of the request's file.
        file = self._log.with_name(f"request-{self._number}")
        file.write_text(json.dumps({"number": self._number, **request}), encoding="utf-8")
        with contextlib.suppress(BrokenPipeError):  # a dead guest's log is reported by the read that follows
            os.write(self._requests, f"{file}\n".encode())
        answer = self._read(time.monotonic() + within_s, str(request.get("function", "a program")))
        while answer["number"] != self._number:  # that of an earlier call, which nothing waits for any more
            answer = self._read(time.monotonic() + within_s, str(request.get("function", "a program")))
        return GuestOutcome(answer["exit_code"], answer["value"], answer["stdout"], answer["stderr"])

    def _read(self, deadline_s: float, waiting_for: str) -> dict[str, Any]:
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline_s - time.monotonic()))
            chunk = os.read(self._answers, 1 << 20) if ready else b""
            if not chunk:
                why = "the guest ended" if ready else "time is up"
                logs = [
                    path.read_text(errors="replace").splitlines() for path in sorted(self._log.parent.glob("*.log"))
                ]
                log = "\n".join(line for lines in logs for line in lines[-LAST_LINES:])
                raise GuestError(f"{waiting_for}: {why}; end of the kernel's log:\n{log}")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def booted(*, memory_mib: int = 1024, kernel: Kernel = "uml") -> Iterator[Guest]:
    """Guest for as long as the context lasts. Raises GuestError where it cannot be had or does not boot."""
    prepare(kernel)
    with tempfile.TemporaryDirectory(prefix="tonnage-guest-") as folder:
        guest = STARTS[kernel](Path(folder) / "kernel.log", memory_mib)
        try:
            guest.wait_until_ready()
            yield guest
        finally:
            guest.power_off()


def prepare(kernel: Kernel) -> None:
    """Fetches what the kernel needs, where the cache has none. Raises GuestError with the reason."""
    PREPARATIONS[kernel]()


def _start_uml(log: Path, memory_mib: int) -> Guest:
    request_end, requests = os.pipe()
    answers, answer_end = os.pipe()
    machine = [f"mem={memory_mib}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "loglevel=4"]
    lines = ["con=null", "con0=null,fd:1", f"ssl0=fd:{request_end},fd:{answer_end}", "panic=-1"]
    command = [str(kernel_program()), *machine, *lines, f"init={sys.executable}", *INIT]
    environment = {
        "PATH": os.defpath,
        "HOME": str(log.parent),
        "TMPDIR": str(SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())),
    }
    process = _process(command, log, (request_end, answer_end), environment)
    os.close(request_end)
    os.close(answer_end)
    return Guest((process,), requests, answers, log)


def _start_emulated(log: Path, memory_mib: int) -> Guest:
    programs = emulator()
    files = log.with_name("files")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(files))
        listener.listen(1)
        server = _process(programs.file_server(listener.fileno()), log.with_name("files.log"), (listener.fileno(),))
    ours, theirs = socket.socketpair()
    words = programs.words(*INIT)
    with ours, theirs:
        command = programs.machine(memory_mib, files, theirs.fileno(), log.with_name("console.log"), words)
        machine = _process(command, log, (theirs.fileno(),))
        return Guest((machine, server), os.dup(ours.fileno()), os.dup(ours.fileno()), log)


def _process(
    command: list[str], log: Path, descriptors: tuple[int, ...], environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,
            pass_fds=descriptors,
            preexec_fn=_die_with_parent,
        )


def _die_with_parent() -> None:
    """Has the guest killed with this process, however that ends: it would wait for requests for ever."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


PREPARATIONS: Mapping[Kernel, Callable[[], object]] = {"uml": kernel_program, "emulated": emulator}
STARTS: Mapping[Kernel, Callable[[Path, int], Guest]] = {"uml": _start_uml, "emulated": _start_emulated}
