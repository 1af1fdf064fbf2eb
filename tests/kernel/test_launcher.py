"""Programs that start inside a cgroup, and what this machine's kernel is capable of."""

from tests.rigs.kernel.guest import ROOT, Guest

SETUP = """
import os, sys, pathlib
sys.path.insert(0, {root!r})
from isolation.cgroupfs import CgroupFs, capability_of
from tests.rigs.launcher import run_in
root = pathlib.Path("/sys/fs/cgroup")
files = CgroupFs(root)
files.make({group!r})
group = files.folder({group!r})
def start_in(group, command, environment, descriptors=None):
    def program():
        for number, source in (descriptors or {{}}).items():
            os.dup2(source, number)
        try:
            os.execvpe(command[0], command, environment)
        except FileNotFoundError:
            return 127
    return run_in(group, program)
def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(guest: Guest, group: str, program: str) -> str:
    outcome = guest.run(SETUP.format(root=str(ROOT), group=group) + program)
    assert not outcome.exit_code, outcome.stderr
    return outcome.stdout


def test_a_program_runs_inside_the_group_from_its_first_instruction(guest: Guest) -> None:
    printed = run(guest, "first", "ended(start_in(group, ['/bin/cat', '/proc/self/cgroup'], {}, {1: 1})[0])")

    assert printed == "0::/first\n"


def test_the_exit_code_of_a_program_is_kept(guest: Guest) -> None:
    printed = run(
        guest,
        "codes",
        "print(ended(start_in(group, ['sh', '-c', 'exit 7'], os.environ)[0]),"
        " ended(start_in(group, ['sh', '-c', 'kill -9 $$'], os.environ)[0]),"
        " ended(start_in(group, ['no-such-program'], os.environ)[0]))",
    )

    assert printed == "7 -9 127\n"


def test_a_program_gets_the_descriptors_and_the_environment_that_it_is_given(guest: Guest) -> None:
    printed = run(
        guest,
        "descriptors",
        "r, w = os.pipe(); pid, _ = start_in(group, ['/bin/sh', '-c', 'echo $WORD'], {'WORD': 'given'}, {1: w});"
        " os.close(w); print(ended(pid), os.read(r, 99))",
    )

    assert printed == "0 b'given\\n'\n"


def test_a_fork_bomb_stays_within_its_group(guest: Guest) -> None:
    printed = run(
        guest,
        "bomb",
        "files.write('bomb', 'pids.max', '20')\n"
        "quiet = {2: os.open('/dev/null', os.O_WRONLY)}\n"
        "pid, _ = start_in(group, ['sh', '-c', 'b() { b | b & }; b; sleep 30'], os.environ, quiet)\n"
        "import time\n"
        "while files.read('bomb', 'pids.events') == 'max 0\\n': time.sleep(0.01)\n"
        "print(int(files.read('bomb', 'pids.current')) <= 20)\n"
        "files.write('bomb', 'cgroup.kill', '1'); ended(pid)\n"
        "while 'populated 1' in files.read('bomb', 'cgroup.events'): time.sleep(0.01)\n"
        "print('contained')",
    )

    assert printed == "True\ncontained\n"


def test_a_pidfd_reports_the_end_of_the_program(guest: Guest) -> None:
    printed = run(
        guest,
        "pidfd",
        "import select; r, w = os.pipe(); pid, fd = start_in(group, ['cat'], os.environ, {0: r})\n"
        "before = select.select([fd], [], [], 0)[0]; os.close(w); after = select.select([fd], [], [], 30)[0]\n"
        "print(before, after == [fd])",
    )

    assert printed == "[] True\n"


def test_the_guest_is_capable_of_everything_but_pressure_information(guest: Guest) -> None:
    printed = run(guest, "facts", "c = capability_of(root); print(c.level, '|', c.reason)")

    assert printed == "full | cgroup v2, writable\n"
