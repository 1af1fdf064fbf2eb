"""Attacks on the node agent by one pod's clients, on a real kernel: each harms that pod alone, at most."""

import ctypes
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kernel.node import (
    FOLDER,
    ROOT,
    Node,
    begin_in_pod,
    in_pod,
    node,
    result_of,
    running_node,
    uid_of,
    waiting_for,
)
from tests.kernel.test_sandbox_client import run
from tests.rigs.kernel.guest import Guest
from tests.rigs.launcher import fork_into
from tonnage import sandbox

CLONE_NEWNS, CLONE_NEWCGROUP, MS_REC_PRIVATE = 0x20000, 0x02000000, 0x44000
"""Of sched.h and sys/mount.h."""


def called(guest: Guest, function: str, *arguments: Any) -> Any:
    return guest.call(f"{__name__}:{function}", *arguments)


def said(packet: bytes, *passed: int) -> dict[str, Any]:
    """Answer of the agent to one packet of a process that asks by itself; empty where it hangs up."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.settimeout(10)
    line.connect(sandbox.socket_path())
    socket.send_fds(line, [packet], passed)
    try:
        answer = line.recv(8192)
    except ConnectionResetError:
        return {}
    made: dict[str, Any] = json.loads(answer) if answer else {}
    return made


def neighbour_runs(made: Node) -> bool:
    """Whether a call of another pod is admitted and ends as it should."""
    found = in_pod(made, "b", lambda: run(["/bin/sh", "-c", "exit 0"], "64Mi", 20.0))
    return bool(found["code"] == 0 and found["outcome"] == "exited" and found["isolated"])


FORGED = (
    '{"type":"ask","mem":-1}',
    '{"type":"ask","mem":"NaN"}',
    '{"type":"ask","mem":NaN}',
    '{"type":"ask","mem":"1e999"}',
    '{"type":"ask","sandbox":"b-0000-4000-8000-000000000000"}',
    '{"type":"ask","pid":1}',
    "[" * 4000,
    "x" * 6000,
)


def test_forged_packets_are_refused_and_the_neighbour_goes_on(guest: Guest) -> None:
    answers, neighbour = called(guest, "forged")

    assert [answer["verdict"]["reason"] for answer in answers] == ["INVALID_HINT"] * len(FORGED)
    assert neighbour


def forged() -> tuple[list[dict[str, Any]], bool]:
    with running_node("a", "b") as made:
        answers: list[dict[str, Any]] = in_pod(made, "a", lambda: [said(packet.encode()) for packet in FORGED])
        return answers, neighbour_runs(made)


def test_a_huge_hint_is_bounded_by_the_pods_own_budget(guest: Guest) -> None:
    limit_mib, neighbour = called(guest, "huge")

    assert limit_mib <= 512
    assert neighbour


def huge() -> tuple[int, bool]:
    with running_node("a", "b") as made:
        found = in_pod(made, "a", lambda: run(["/bin/sh", "-c", "exit 0"], 1 << 60, 20.0))
        return found["limit_mib"], neighbour_runs(made)


def test_a_process_of_another_pod_is_refused_at_a_pods_socket(guest: Guest) -> None:
    answer, own = called(guest, "wrong_door")

    assert answer["verdict"]["reason"] == "UNKNOWN_SANDBOX"
    assert own == []


def wrong_door() -> tuple[dict[str, Any], list[str]]:
    with running_node("a", "b") as made:

        def at_anothers_door() -> dict[str, Any]:
            os.environ[sandbox.SOCKET_VARIABLE] = made.socket("b")
            return said(b'{"type":"ask","mem":"64Mi"}')

        return in_pod(made, "a", at_anothers_door), made.calls("b")


def test_a_pid_that_another_pods_process_took_over_moves_nobody(guest: Guest) -> None:
    answer, moved = called(guest, "reused_pid")

    assert answer == {} or answer["verdict"]["reason"] == "UNKNOWN_SANDBOX"
    assert not moved


def reused_pid() -> tuple[dict[str, Any], bool]:
    """A child connects and ends; its socket stays with the parent; its pid becomes a process of the other pod."""
    with running_node("a", "b") as made:
        ready, go = FOLDER / "pid", FOLDER / "go"

        def attack() -> dict[str, Any]:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            line.settimeout(20)
            child = os.fork()
            if not child:
                line.connect(sandbox.socket_path())
                os._exit(0)
            os.waitpid(child, 0)
            ready.with_suffix(".new").write_text(str(child), encoding="ascii")
            ready.with_suffix(".new").rename(ready)
            while not go.exists():
                time.sleep(0.01)
            try:
                line.send(b'{"type":"ask","mem":"64Mi"}')
                answer = line.recv(8192)
            except OSError:
                answer = b""
            return json.loads(answer) if answer else {}

        begun = begin_in_pod(made, "a", attack)
        while not ready.exists():
            time.sleep(0.01)
        pid = int(ready.read_text(encoding="ascii"))
        victim = _with_pid(made, "b", pid)
        go.touch()
        answer = result_of(begun)
        moved = "/call-" in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii") if victim else False
        return answer, moved


def _with_pid(made: Node, name: str, pid: int) -> bool:
    """Forks in a pod until a process has this pid; False where the kernel's counter cannot be set."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    group = made.files.folder(made.agent_leaf(name))
    for _ in range(20):
        try:
            last.write_text(str(pid - 1), encoding="ascii")
        except OSError:
            return False
        child, pidfd = fork_into(group)
        if not child:
            time.sleep(30)
            os._exit(0)
        os.close(pidfd)
        if child == pid:
            return True
    return False


def test_ten_thousand_requests_of_one_pod_leave_the_others_their_turn(guest: Guest) -> None:
    answered, for_s, neighbour = called(guest, "flood")

    # 100 at once, and 50 a second: what is served is bounded by the quota, whatever is asked. 10,000 take 198 s.
    assert answered <= 100 + 50 * for_s
    assert neighbour


def flood() -> tuple[int, float, bool]:
    """Asks on until the neighbour's call ended: that is the claim."""
    with running_node("a", "b") as made:
        enough, under_way = FOLDER / "enough", FOLDER / "under-way"

        def ask_on() -> tuple[int, float]:
            count = 0
            began_s = time.monotonic()
            for number in range(10_000):
                if enough.exists():
                    break
                if number == 200:  # the bucket is empty
                    under_way.touch()
                line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                line.settimeout(0.05)
                with suppress(OSError):
                    line.connect(sandbox.socket_path())
                    line.send(b'{"type":"ask","mem":-1}')
                    count += bool(line.recv(8192))
                line.close()
            return count, time.monotonic() - began_s

        begun = begin_in_pod(made, "a", ask_on)
        while not under_way.exists():
            time.sleep(0.01)
        neighbour = neighbour_runs(made)
        enough.touch()
        answered, for_s = result_of(begun)
        return answered, for_s, neighbour


def test_sockets_that_are_held_open_and_silent_are_ended(guest: Guest) -> None:
    open_left, neighbour = called(guest, "silent")

    assert open_left == 0
    assert neighbour


def silent() -> tuple[int, bool]:
    with running_node("a", "b", silent_s=1.0) as made:

        def hold() -> int:
            lines = []
            for _ in range(80):
                line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                line.connect(sandbox.socket_path())  # waits where the backlog is full
                line.settimeout(20)
                lines.append(line)
            return sum(_is_open(line) for line in lines)

        begun = begin_in_pod(made, "a", hold)
        neighbour = neighbour_runs(made)
        return result_of(begun), neighbour


def _is_open(line: socket.socket) -> bool:
    """Whether the agent has not hung up within the socket's time."""
    try:
        while line.recv(8192):
            pass
    except TimeoutError:
        return True
    except OSError:
        return False
    return False


def test_a_fork_bomb_before_the_pod_is_taken_over_is_taken_over_whole(guest: Guest) -> None:
    outside, inside = called(guest, "bomb_before")

    assert outside == 0
    assert inside > 5


def bomb_before() -> tuple[int, int]:
    with node() as made:
        home = made.add_pod("a")
        made.files.write(home, "pids.max", "60")

        def bomb() -> None:
            end_s = time.monotonic() + 600
            while time.monotonic() < end_s:
                try:
                    os.fork()
                except OSError:
                    time.sleep(0.05)

        pid, _ = begin_in_pod(made, "a", bomb)
        assert pid
        while len(made.files.read(home, "cgroup.procs").split()) < 20:
            time.sleep(0.01)
        made.start()
        made.take_all()
        outside = len(made.files.read(home, "cgroup.procs").split())
        return outside, len(made.files.read(f"{home}/agent", "cgroup.procs").split())


BOMB = ["/bin/sh", "-c", "b() { b | b & }; b 2>/dev/null; wait"]


def test_a_fork_bomb_in_a_call_meets_its_own_bound_and_ends_with_its_call(guest: Guest) -> None:
    most, left, neighbour = called(guest, "bomb_inside")

    assert most <= 40
    assert left == 0
    assert neighbour


def bomb_inside() -> tuple[int, int, bool]:
    with running_node("a", "b", pids_per_call=40) as made:

        def bomb() -> int:
            with sandbox.tool("64Mi") as tool:
                tool.start(BOMB)
                (call,) = _until_some(lambda: made.calls("a"))
                while made.files.read(call, "pids.events").split()[1] == "0":  # until a fork was refused
                    time.sleep(0.01)
                (FOLDER / "bombed").touch()
                _until_some(lambda: (FOLDER / "enough").exists())
                return int(made.files.read(call, "pids.current"))

        begun = begin_in_pod(made, "a", bomb)
        _until_some(lambda: (FOLDER / "bombed").exists())
        neighbour = neighbour_runs(made)
        (FOLDER / "enough").touch()
        most = result_of(begun)
        made.until(lambda report: report.sandboxes[uid_of("a")].running == 0)
        return most, len(made.calls("a")), neighbour


def _until_some(found: Callable[[], Any]) -> Any:
    while not (some := found()):
        time.sleep(0.01)
    return some


def test_a_fork_bomb_by_a_client_that_waits_stays_in_its_own_pod(guest: Guest) -> None:
    """Only the process that asked becomes the call: what it started before stays with the agent, and its limits."""
    in_call, with_agent, neighbour = called(guest, "bomb_while_it_waits")

    assert in_call == 1
    assert 10 <= with_agent <= 60
    assert neighbour


def bomb_while_it_waits() -> tuple[int, int, bool]:
    with running_node("a", "b") as made:
        made.files.write(made.homes["a"], "pids.max", "60")  # the kubelet's podPidsLimit

        def attack() -> tuple[int, int]:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            line.connect(sandbox.socket_path())
            for _ in range(10):
                if not os.fork():
                    time.sleep(600)
                    os._exit(0)
            line.send(b'{"type":"ask","mem":"64Mi"}')
            answer = json.loads(line.recv(8192))
            assert answer["state"] == "admitted", answer
            (call,) = made.calls("a")
            agents = made.files.read(made.agent_leaf("a"), "cgroup.procs").split()
            return len(made.files.read(call, "cgroup.procs").split()), len(agents)

        in_call, with_agent = in_pod(made, "a", attack)
        return in_call, with_agent, neighbour_runs(made)


def test_a_user_of_the_pod_can_write_no_file_of_the_tree(guest: Guest) -> None:
    written, neighbour = called(guest, "unprivileged")

    assert written == []
    assert neighbour


UPWARDS = (
    "cgroup.procs",
    "cgroup.subtree_control",
    "memory.max",
    "memory.high",
    "cgroup.freeze",
    "cgroup.kill",
    "pids.max",
)


def unprivileged() -> tuple[list[str], bool]:
    with running_node("a", "b") as made:

        def climb() -> list[str]:
            home = made.homes["a"]
            own = [f"{home}/{leaf}" for leaf in ("agent", "light")]
            above = ["/".join(home.split("/")[:depth]) for depth in range(len(home.split("/")) + 1)]
            groups = [*own, *above, f"{made.homes['b']}/agent"]
            files = [f"{group}/{file}" for group in groups for file in UPWARDS]
            reader, writer = os.pipe()
            if not os.fork():
                os.setgid(1000)
                os.setuid(1000)
                os.write(writer, json.dumps([file for file in files if _writes(ROOT / file)]).encode())
                os._exit(0)
            written: list[str] = json.loads(os.read(reader, 1 << 16))
            return written

        return in_pod(made, "a", climb), neighbour_runs(made)


def _writes(path: Path) -> bool:
    """Whether this process may write its own pid, or a harmless value, into a file of the tree."""
    value = str(os.getpid()) if path.name == "cgroup.procs" else "" if path.name == "cgroup.subtree_control" else "0"
    try:
        path.write_text(value, encoding="ascii")
    except OSError:
        return False
    return True


def test_root_in_a_pod_with_a_writable_tree_leaves_neither_its_container_nor_its_limits(guest: Guest) -> None:
    """The tree as containerd's `cgroup_writable` mounts it: a cgroup namespace that begins at the container."""
    moved, changed, limit, neighbour = called(guest, "writable")

    assert moved == []
    assert changed == []
    assert limit == str(512 << 20)
    assert neighbour


def writable() -> tuple[list[str], list[str], str, bool]:
    with node() as made:
        for name in ("a", "b"):
            made.add_pod(name)

        def climb() -> tuple[list[str], list[str]]:
            libc = ctypes.CDLL(None, use_errno=True)
            assert not libc.unshare(CLONE_NEWCGROUP | CLONE_NEWNS), os.strerror(ctypes.get_errno())
            (FOLDER / "apart").touch()
            _until_some(lambda: (FOLDER / "taken").exists())
            mounted = FOLDER / "mounted"
            mounted.mkdir()
            libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None)
            assert not libc.mount(b"cgroup2", str(mounted).encode(), b"cgroup2", 0, None)
            above = [ROOT / "/".join(made.homes["a"].split("/")[:depth]) for depth in range(5)]
            others = [*above, ROOT / made.homes["b"] / "agent"]
            moved = [str(group) for group in others if _writes(group / "cgroup.procs")]
            limits = ("memory.max", "memory.high", "pids.max", "cgroup.freeze")
            return moved, [file for file in limits if _writes(mounted / file)]

        begun = begin_in_pod(made, "a", climb)
        _until_some(lambda: (FOLDER / "apart").exists())
        made.start()
        made.take_all()
        (FOLDER / "taken").touch()
        moved, changed = result_of(begun)
        limit = made.files.read(made.homes["a"], "memory.max").strip()
        return moved, changed, limit, neighbour_runs(made)


def test_a_daemon_that_a_call_leaves_stays_in_its_leaf(guest: Guest) -> None:
    left, after, neighbour = called(guest, "daemon")

    assert left == 1
    assert after == 0
    assert neighbour


def daemon() -> tuple[int, int, bool]:
    here = f"open({str(FOLDER / 'daemon')!r}, 'w')"
    # It says that it is there when its parents are gone.
    twice = "if os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)"
    source = f"import os,time\n{twice}\nwhile os.getppid() > 1: time.sleep(0.01)\n{here}\ntime.sleep(600)"

    with running_node("a", "b") as made:

        def leave_a_daemon() -> list[int]:
            with sandbox.tool("64Mi") as tool:
                tool.run([sys.executable, "-S", "-c", source])
                while not (FOLDER / "daemon").exists():
                    time.sleep(0.01)
                return [
                    len(Path(f"/sys/fs/cgroup/{group}/cgroup.procs").read_text().split()) for group in made.calls("a")
                ]

        left = in_pod(made, "a", leave_a_daemon)
        made.until(lambda report: report.sandboxes[uid_of("a")].running == 0)
        return sum(left), len(made.calls("a")), neighbour_runs(made)


def test_a_call_is_taken_up_by_nobody_else(guest: Guest) -> None:
    answers, neighbour = called(guest, "taken_up_by_another")

    # Another pod's process, a descriptor that is no pidfd, none at all, and a call whose client is there.
    assert [answer.get("verdict", {}).get("reason") for answer in answers] == ["UNKNOWN_SANDBOX"] * 2 + [
        None,
        "UNKNOWN_SANDBOX",
    ]
    assert neighbour


def taken_up_by_another() -> tuple[list[dict[str, Any]], bool]:
    with running_node("a", "b") as made:
        begun = begin_in_pod(made, "a", lambda: run(waiting_for(FOLDER / "go"), "64Mi"))
        (call,) = _until_some(lambda: made.calls("a"))
        pid = int(_until_some(lambda: made.files.read(call, "cgroup.procs").split())[0])

        def resume() -> list[dict[str, Any]]:
            pidfd, other = os.pidfd_open(pid), os.open("/dev/null", os.O_RDONLY)
            return [said(b'{"type":"resume"}', *passed) for passed in ((pidfd,), (other,), ())]

        answers = in_pod(made, "b", resume)
        answers += in_pod(made, "a", lambda: [said(b'{"type":"resume"}', os.pidfd_open(pid))])
        (FOLDER / "go").touch()
        result_of(begun)
        return answers, neighbour_runs(made)


def test_links_in_the_pods_folder_are_not_followed(guest: Guest) -> None:
    kept, neighbour = called(guest, "linked")

    assert kept == "kept"
    assert neighbour


def linked() -> tuple[str, bool]:
    with node() as made:
        for name in ("a", "b"):
            made.add_pod(name)
        victim = FOLDER / "victim"
        own = FOLDER / "sockets" / uid_of("a")
        own.mkdir(parents=True)
        victim.write_text("kept", encoding="ascii")
        (own / "agent.sock").symlink_to(victim)
        made.start()
        made.take_all()
        return victim.read_text(encoding="ascii"), neighbour_runs(made)
