"""Tenants that hold what they have, or try to: each runs in pod `a` of the guest, and goes on until it is killed."""

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

MIB = 1 << 20
PYTHON = [sys.executable, "-S", "-c"]
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_TRACEME, PTRACE_SEIZE, PTRACE_INTERRUPT = 0, 0x4206, 0x4207


def forever() -> None:
    while True:
        time.sleep(1)


def child(program: Callable[[], object]) -> int:
    if pid := os.fork():
        return pid
    with suppress(BaseException):
        program()
    os._exit(0)


def files_in_memory() -> None:
    Path("/dev/shm/held").write_bytes(b"x" * (60 * MIB))  # noqa: S108
    forever()


def files_of_a_call() -> None:
    subprocess.run([*PYTHON, "open('/dev/shm/held', 'wb').write(b'x' * (60 << 20))"], check=False)  # noqa: S603
    forever()


def nameless_files() -> None:
    for _ in range(6):
        os.write(os.memfd_create("held"), b"x" * (10 * MIB))
    forever()


def locked_pages() -> None:
    held = mmap.mmap(-1, 60 * MIB)
    libc.mlock(ctypes.byref(ctypes.c_char.from_buffer(held)), ctypes.c_size_t(60 * MIB))
    forever()


def reads() -> None:
    while True:
        for file in Path(sys.prefix).rglob("*.so"):
            with suppress(OSError):
                file.read_bytes()


def nested_tree() -> None:
    """The container's own groups, as an own systemd or docker makes them, before it is taken over."""
    inner = _own_group() / "init"
    inner.mkdir(exist_ok=True)
    (inner / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    forever()


def deep_tree() -> None:
    below = _own_group()
    for _ in range(40):
        below /= "deeper"
        with suppress(OSError):
            below.mkdir(exist_ok=True)
    forever()


def many_groups() -> None:
    for number in range(300):
        with suppress(OSError):
            (_own_group() / f"own-{number}").mkdir(exist_ok=True)
    forever()


def _own_group() -> Path:
    line = Path("/proc/self/cgroup").read_text(encoding="utf-8").strip().rpartition("::/")[2]
    return Path("/sys/fs/cgroup") / line.removesuffix("/agent")


def fork_loop() -> None:
    while True:
        child(lambda: None)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def fork_bomb() -> None:
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.05)


def fork_chain() -> None:
    """A process that is always another one: its parent ends when it begins."""
    while True:
        if os.fork():
            os._exit(0)
        time.sleep(0.002)


def exec_loop() -> None:
    while True:
        subprocess.run(["/bin/true"], check=False)


def exec_chain() -> None:
    again = 'sleep 0.05; exec /bin/sh -c "$0" "$0"'
    os.execv("/bin/sh", ["/bin/sh", "-c", again, again])  # noqa: S606


def session_hopping() -> None:
    while True:
        if not os.fork():
            os.setsid()
            if not os.fork():
                os.execv("/bin/sleep", ["sleep", "1"])  # noqa: S606
            os._exit(0)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)
        time.sleep(0.05)


def stopped() -> None:
    for _ in range(10):
        os.kill(child(forever), signal.SIGSTOP)
    forever()


def stopped_calls() -> None:
    for _ in range(5):
        os.kill(subprocess.Popen(["/bin/sleep", "600"]).pid, signal.SIGSTOP)
    forever()


def traced() -> None:
    """Its child stands still at a stop of ptrace."""

    def stand_still() -> None:
        libc.ptrace(PTRACE_TRACEME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)

    child(stand_still)
    forever()


def traced_calls() -> None:
    """It seizes and stops each call that it starts."""
    while True:
        started = subprocess.Popen(["/bin/sleep", "600"])
        for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
            libc.ptrace(request, started.pid, 0, 0)
        time.sleep(1)


def zombies() -> None:
    for _ in range(100):
        child(lambda: None)
    forever()


def orphans() -> None:
    for _ in range(20):
        os.waitpid(child(lambda: child(forever)), 0)
    forever()


def vfork_parent() -> None:
    """It sleeps in the kernel for as long as its child runs no program: no signal reaches it."""
    source = "import ctypes, time; c = ctypes.CDLL(None); c.vfork() or time.sleep(600)"
    subprocess.Popen([*PYTHON, source])  # noqa: S603
    forever()


def threads() -> None:
    source = "import threading, time; [threading.Thread(target=time.sleep, args=(600,)).start() for _ in range(100)]"
    subprocess.Popen([*PYTHON, source])  # noqa: S603
    forever()


def odd_names() -> None:
    """Names that look like another process's state in /proc/<pid>/stat, and commands without words."""
    libc.prctl(15, b") R 1 1 1 0 0 4", 0, 0, 0)
    for words in ([""], ["\n\n"], ["x" * 100_000], ["a", *["b"] * 5000]):
        subprocess.Popen(words, executable="/bin/cat", stdin=subprocess.PIPE)  # noqa: S603
    forever()


def many_calls() -> None:
    for _ in range(40):
        subprocess.Popen([*PYTHON, "import time; time.sleep(600)"])  # noqa: S603
    forever()


def bomb_in_a_call() -> None:
    subprocess.Popen(["/bin/sh", "-c", "b() { b | b & }; b 2>/dev/null; wait"])
    forever()


def outgrowing_calls() -> None:
    source = "import mmap; mmap.mmap(-1, 300 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)"
    while True:
        subprocess.run([*PYTHON, source], check=False)  # noqa: S603


def deaf() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
    for _ in range(5):
        child(forever)
    forever()


def own_namespaces() -> None:
    """Processes with pids, users' roots and mounts of their own."""
    libc.unshare(0x20000000 | 0x20000)  # CLONE_NEWPID | CLONE_NEWNS
    for _ in range(5):
        child(forever)
    forever()


def full_pipes() -> None:
    kept = []
    for _ in range(200):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            os.write(writer, b"x" * 65536)
        kept.append((reader, writer))
    forever()


def busy_first() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    while True:
        sum(range(1000))


HOLDERS: Mapping[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        files_in_memory, files_of_a_call, nameless_files, locked_pages, reads, nested_tree, deep_tree, many_groups,
        fork_loop, fork_bomb, fork_chain, exec_loop, exec_chain, session_hopping, stopped, stopped_calls, traced,
        traced_calls, zombies, orphans, vfork_parent, threads, odd_names, many_calls, bomb_in_a_call, outgrowing_calls,
        deaf, own_namespaces, full_pipes, busy_first,
    )
}  # fmt: skip
