"""Attacks on the node agent by one pod's clients, on a real kernel: each harms that pod alone, at most."""

import json
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from isolation.launcher import fork_into
from simulator.kernel.guest import Guest
from tests.kernel.node import FOLDER, Node, begin_in_pod, in_pod, node, result_of, running_node, uid_of
from tests.kernel.test_sandbox_client import run
from tonnage import sandbox


def called(guest: Guest, function: str, *arguments: Any) -> Any:
    return guest.call(f"{__name__}:{function}", *arguments)


def said(packet: bytes) -> dict[str, Any]:
    """Answer of the agent to one packet of a process that asks by itself; empty where it hangs up."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.settimeout(10)
    line.connect(sandbox.socket_path())
    line.send(packet)
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


def test_a_fork_bomb_in_a_call_and_a_daemon_that_it_leaves_stay_in_its_leaf(guest: Guest) -> None:
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
