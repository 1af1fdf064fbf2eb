"""Sockets of pods: what a hostile, full, slow or dead pod does harms that pod alone."""

import os
import socket
import time
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nodeagent.health.pod_sockets import SOCKET, PodSockets
from nodeagent.health.processes import NodeProcess, Senders
from tests.builders.lingering import lingering_socket
from tests.clock import HandClock
from tonnage import records
from tonnage.recorder import AgentSocket
from tonnage.records import Kind

POD = "11111111-2222-3333-4444-555555555555"
OTHER = "99999999-2222-3333-4444-555555555555"
FRAME = records.frame([records.packed(Kind.BEAT)], rank=3, at_ns=1, wall_minus_ns=0, incarnation=0, dropped=0)


def send(path: str, datagram: bytes) -> None:
    with closing(AgentSocket(path)) as sending:
        sending(datagram)


class OneProcess:
    """This test's process, in the pod that it is set to."""

    def __init__(self, pod: str, started_s: float = 0.0) -> None:
        self.pod, self.started_s = pod, started_s

    def look(self, pid: int) -> NodeProcess | None:
        return NodeProcess(self.started_s, "R", self.pod) if pid == os.getpid() else None


class Node:
    """Sockets of one node, and what they delivered."""

    def __init__(self, folder: Path, **rules: float) -> None:
        self.clock, self.process, self.heard = HandClock(100.0), OneProcess(POD), list[tuple[str, int, bytes]]()
        self.folder = folder
        self.sockets = PodSockets(
            folder,
            Senders(self.process, self.clock),
            lambda *frame: self.heard.append(frame),
            self.clock,
            **rules,  # type: ignore[arg-type]
        )

    def mount(self, pod: str) -> str:
        (self.folder / pod).mkdir(exist_ok=True)
        self.sockets.look()
        return str(self.folder / pod / SOCKET)


@pytest.fixture
def node(short_path: Path) -> Iterator[Node]:
    made = Node(short_path)
    yield made
    made.sockets.close()


def test_a_frame_is_delivered_under_the_pod_that_the_kernel_names(node: Node) -> None:
    send(node.mount(POD), FRAME)

    node.sockets.read(0)

    assert node.heard == [(POD, os.getpid(), FRAME)]


def test_a_pod_that_found_anothers_socket_is_not_heard_on_it(node: Node) -> None:
    send(node.mount(OTHER), FRAME)

    node.sockets.read(0)

    assert not node.heard
    assert node.sockets.dropped == {"stranger": 1}


def test_a_process_that_may_have_taken_over_a_number_is_not_heard_yet(node: Node) -> None:
    node.process.started_s = 99.5
    send(node.mount(POD), FRAME)

    node.sockets.read(0)

    assert node.sockets.dropped == {"stranger": 1}


def test_a_quiet_socket_does_not_make_its_pod_younger(node: Node) -> None:
    path = node.mount(POD)
    node.process.started_s = 150.0
    node.clock.now_s = 200.0
    node.sockets.read(0)  # nothing waits by then
    node.clock.now_s = 200.1

    send(path, FRAME)
    node.sockets.read(0)

    assert len(node.heard) == 1


@pytest.mark.parametrize(
    "datagram",
    [b"", b"x", b"\x80\x04N.", bytes(32), FRAME[:-1], FRAME[:32] + bytes([99]) + FRAME[33:], FRAME * 2],
)
def test_what_is_no_frame_is_counted_and_forgotten(node: Node, datagram: bytes) -> None:
    send(node.mount(POD), datagram)

    node.sockets.read(0)

    assert not node.heard
    assert node.sockets.dropped == {"malformed": 1}


def test_a_descriptor_in_a_datagram_is_not_taken(node: Node) -> None:
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    opened = os.open("/dev/null", os.O_RDONLY)
    descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [opened]).tobytes())]
    path = node.mount(POD)
    before = len(os.listdir("/proc/self/fd"))

    sender.sendmsg([FRAME], descriptors, 0, path)
    node.sockets.read(0)

    until_s = time.monotonic() + 30
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < until_s:
        time.sleep(0.001)
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(node.heard) == 1
    os.close(opened)
    sender.close()


def test_sockets_that_linger_when_closed_delay_no_other_pod(short_path: Path) -> None:
    node = Node(short_path)
    path = node.mount(POD)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        began_s = time.monotonic()
        for _ in range(2):
            attached = lingering_socket(for_s=30)
            rights = array("i", [attached.fileno()]).tobytes()
            sender.sendmsg([FRAME], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], 0, path)
            attached.close()
            if not node.heard:
                node.sockets.read(0)

        node.sockets.close()  # the second lies unread in the queue

    assert time.monotonic() - began_s < 10
    assert len(node.heard) == 1


def test_a_flood_is_read_no_faster_than_its_allowance_and_others_are_heard(short_path: Path) -> None:
    node = Node(short_path, bytes_per_s=1024.0)
    mine, others = node.mount(POD), node.mount(OTHER)
    with closing(AgentSocket(mine)) as flood:
        for _ in range(1000):
            try:
                flood(FRAME)
            except BlockingIOError:  # its own queue is full: the recorder drops and counts
                node.sockets.read(0)
    delivered = len(node.heard)
    node.process.pod = OTHER

    send(others, FRAME)
    node.sockets.read(0)

    assert delivered == 5  # 4 s of 1 kB/s, each datagram costs 1 kB, and the last one overdraws
    assert node.heard[-1][0] == OTHER
    node.process.pod = POD
    node.clock.now_s += 2.5
    node.sockets.read(0)
    assert len([pod for pod, *_ in node.heard if pod == POD]) > delivered
    node.sockets.close()


def test_a_pod_that_breaks_its_socket_gets_another(node: Node) -> None:
    path = node.mount(POD)
    Path(path).unlink()
    Path(path).symlink_to("/etc/hostname")
    mode = Path("/etc/hostname").stat().st_mode

    node.sockets.look()
    send(path, FRAME)
    node.sockets.read(0)

    assert len(node.heard) == 1
    assert Path("/etc/hostname").stat().st_mode == mode


def test_the_socket_of_a_pod_that_is_gone_is_closed(node: Node) -> None:
    path = Path(node.mount(POD))
    path.unlink()
    path.parent.rmdir()

    node.sockets.look()

    assert node.sockets.pods == frozenset()


def test_folders_that_are_no_pods_get_no_socket(node: Node) -> None:
    node.mount("not-a-uid")

    assert node.sockets.pods == frozenset()


def test_more_folders_than_allowed_displace_no_pod_that_is_heard(short_path: Path) -> None:
    node = Node(short_path, most_pods=1)
    send(node.mount(POD), FRAME)
    node.sockets.read(0)

    node.mount(OTHER)

    assert node.sockets.pods == {POD}
    assert node.sockets.dropped == {"full": 1}
    node.clock.now_s += 61
    node.sockets.look()
    assert node.sockets.pods == {OTHER}
    node.sockets.close()
