"""Start of a process inside a cgroup: clone3 puts it there before its first instruction. Touches the kernel.

There is no window in which a fork bomb or an allocation lies outside, and no migration to pay for. Python's own
fork hooks are skipped, so that it is for a process with one thread only.
"""

import ctypes
import os
import signal
from collections.abc import Callable

_SYS_CLONE3 = 435
"""The same number on every architecture but alpha."""
_CLONE_PIDFD = 0x1000
_CLONE_INTO_CGROUP = 0x200000000
"""Linux 5.7."""


class _CloneArguments(ctypes.Structure):
    """struct clone_args of linux/sched.h, with the cgroup (version 2, 88 bytes)."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack")),
        *((name, ctypes.c_uint64) for name in ("stack_size", "tls", "set_tid", "set_tid_size", "cgroup")),
    )


_libc = ctypes.PyDLL(None, use_errno=True)
"""PyDLL keeps the interpreter's lock, so that the child owns it too."""
_libc.syscall.restype = ctypes.c_long


def fork_into(cgroup: int) -> tuple[int, int]:
    """Forks into the cgroup of an open folder. Returns (pid, pidfd) to the parent, (0, -1) to the child.

    Raises OSError: EAGAIN at pids.max, EBUSY where the group has controllers enabled for children.
    """
    pidfd = ctypes.c_int(-1)
    arguments = _CloneArguments(
        flags=_CLONE_PIDFD | _CLONE_INTO_CGROUP,
        pidfd=ctypes.addressof(pidfd),
        exit_signal=signal.SIGCHLD,
        cgroup=cgroup,
    )
    pid = _libc.syscall(_SYS_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
    if pid < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"starting a process in a cgroup: {os.strerror(code)}")
    return pid, pidfd.value


def run_in(cgroup: int, program: Callable[[], int]) -> tuple[int, int]:
    """Runs a function in a child inside the cgroup; its result is the exit code. Returns pid and pidfd."""
    pid, pidfd = fork_into(cgroup)
    if pid:
        return pid, pidfd
    code = 127
    try:
        code = program()
    finally:
        os._exit(code)
