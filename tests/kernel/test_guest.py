"""The guest: real cgroups, Python code in it, and failures that reach the caller."""

import os

import pytest

from cluster.errors import GuestError
from tests.rigs.kernel.guest import Guest


def test_a_program_in_the_guest_returns_its_output_and_exit_code(guest: Guest) -> None:
    outcome = guest.run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")

    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (3, "out\n", "err\n")


def test_the_guest_has_a_kernel_of_its_own_with_four_controllers(guest: Guest) -> None:
    outcome = guest.run(
        "import os; print(os.uname().release); print(open('/sys/fs/cgroup/cgroup.subtree_control').read())"
    )

    release, controllers = outcome.stdout.split("\n", 1)
    assert release != os.uname().release
    assert controllers.split() == ["cpu", "io", "memory", "pids"]


def test_a_function_is_called_with_arguments_of_any_size(guest: Guest) -> None:
    # The serial line itself drops what exceeds its 4 KiB.
    assert guest.call("builtins:len", "x" * 1_000_000) == 1_000_000


def test_a_large_result_comes_back_whole(guest: Guest) -> None:
    assert guest.call("operator:mul", "abcdefgh", 100_000) == "abcdefgh" * 100_000


def test_a_failing_function_raises_with_its_traceback(guest: Guest) -> None:
    with pytest.raises(GuestError, match="ZeroDivisionError"):
        guest.call("operator:truediv", 1, 0)


def test_a_killed_program_reports_its_signal(guest: Guest) -> None:
    assert guest.run("import os; os.kill(os.getpid(), 9)").exit_code == -9


def test_the_guest_cannot_write_this_machines_files(guest: Guest) -> None:
    outcome = guest.run(f"open({__file__!r}, 'a')")

    assert "Read-only file system" in outcome.stderr


def test_calls_leave_no_zombie_behind(guest: Guest) -> None:
    guest.run("import os; os.fork() or os.fork()")

    states = guest.run(
        "import pathlib; print(sum('State:\\tZ' in p.read_text() for p in pathlib.Path('/proc').glob('[0-9]*/status')))"
    )
    assert states.stdout == "0\n"


def test_a_program_that_never_ends_is_given_up(guest: Guest) -> None:
    with pytest.raises(GuestError, match="time is up"):
        guest.run("import time; time.sleep(1)", within_s=0.1)
    # Its late answer is not taken for that of a later call.
    assert guest.run("print('later')", within_s=60).stdout == "later\n"
