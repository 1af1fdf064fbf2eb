"""Rules of the recorder: it tells the agent everything it can, and the job never notices it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from health.remediation.advice import FAULTS_PER_NODE_S, advised_interval_s
from tonnage import records
from tonnage.recorder import AgentSocket, Recorder
from tonnage.records import FIELDS, Failure, Kind, Op, Phase, Role, Times


class HandClock:
    """Clock that the test moves, in nanoseconds."""

    def __init__(self) -> None:
        self.now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns


class Agent:
    """Agent that keeps the frames it gets."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.gone = False

    def __call__(self, datagram: bytes) -> None:
        if self.gone:
            raise ConnectionRefusedError
        assert records.checked(datagram) == ""
        self.frames.append(datagram)

    def got(self, kind: Kind) -> list[dict[str, int]]:
        bodies = b"".join(frame[32:] for frame in self.frames)
        rows = np.frombuffer(bodies, dtype=np.dtype(list(FIELDS)))
        return [{name: int(row[name]) for name, _ in FIELDS} for row in rows if row["kind"] == kind]


def recorder_of(agent: Agent, clock: HandClock, ring: int = 100) -> Recorder:
    return Recorder(agent, rank=3, ring=ring, clock=clock, wall=lambda: 5_000_000)


def still_recorder(agent: Agent, clock: HandClock) -> Recorder:
    """A recorder whose job stands in one place, after one operation."""
    recorder = Recorder(agent, rank=3, clock=clock, wall=lambda: 5_000_000, stack=lambda: "train.py:12 step")
    recorder.exit(recorder.enter(recorder.join("dp0", (1, 3), Role.DATA), Op.ALL_REDUCE, 1))
    return recorder


def test_a_job_that_stands_still_sends_its_stack_once() -> None:
    agent, clock = Agent(), HandClock()
    recorder = still_recorder(agent, clock)
    for beats in range(1, 200):
        clock.now_ns += 250_000_000
        recorder.beat()
        assert len(agent.got(Kind.STACK)) == (1 if beats >= 8 else 0)


def test_a_job_of_long_steps_sends_its_stack_every_ten_seconds_at_most() -> None:
    agent, clock = Agent(), HandClock()
    recorder = still_recorder(agent, clock)
    for _ in range(20):
        for _ in range(12):
            clock.now_ns += 250_000_000
            recorder.beat()
        recorder.exit(recorder.enter(0, Op.ALL_REDUCE, 1))
    assert 4 <= len(agent.got(Kind.STACK)) <= 6


def test_a_checkpoint_sends_no_stack() -> None:
    agent, clock = Agent(), HandClock()
    recorder = still_recorder(agent, clock)
    with recorder.phase(Phase.CHECKPOINT):
        clock.now_ns += 5_000_000_000
        recorder.beat()
    assert not agent.got(Kind.STACK)


@pytest.mark.parametrize(("nodes", "save_s"), [(8, 20), (1250, 1)])
def test_a_save_is_due_after_the_interval_that_health_advise_tells(nodes: int, save_s: int) -> None:
    clock = HandClock()
    recorder = recorder_of(Agent(), clock)
    assert recorder.is_save_due(nodes)
    with recorder.phase(Phase.CHECKPOINT):
        clock.now_ns += save_s * 1_000_000_000
    advised_s = advised_interval_s(save_s, 1 / (nodes * FAULTS_PER_NODE_S))

    clock.now_ns += int(0.98 * advised_s * 1e9)
    assert not recorder.is_save_due(nodes)
    with recorder.phase(Phase.EVALUATION):
        clock.now_ns += int(0.04 * advised_s * 1e9)
    assert recorder.is_save_due(nodes)


def test_a_stack_of_nothing_sends_nothing() -> None:
    agent, clock = Agent(), HandClock()
    recorder = Recorder(agent, rank=3, clock=clock, stack=str)
    clock.now_ns += 5_000_000_000
    recorder.beat()
    assert agent.got(Kind.BEAT)
    assert not agent.got(Kind.STACK)


def test_an_operation_is_recorded_with_enter_and_exit() -> None:
    agent, clock = Agent(), HandClock()
    recorder = recorder_of(agent, clock)
    group = recorder.join("dp0", (1, 3), Role.DATA)
    recorder.step(12)

    token = recorder.enter(group, Op.ALL_REDUCE, 1 << 20)
    clock.now_ns += 500
    recorder.exit(token)
    recorder.beat()

    (done,) = agent.got(Kind.OPERATION)
    assert (done["at_ns"], done["for_ns"], done["seq"], done["step"], done["size"]) == (1_000, 500, 1, 12, 161)
    (member,) = agent.got(Kind.MEMBER)
    assert (member["op"], member["seq"], member["step"]) == (Role.DATA, 1, 2)


def test_a_heartbeat_names_the_operations_in_flight_and_the_phase() -> None:
    agent, clock = Agent(), HandClock()
    recorder = recorder_of(agent, clock)
    recorder.enter(0, Op.BROADCAST)
    clock.now_ns += 700

    with recorder.phase(Phase.CHECKPOINT):
        recorder.beat()

    (beat,) = agent.got(Kind.BEAT)
    (waiting,) = agent.got(Kind.IN_FLIGHT)
    assert (beat["group"], beat["phase"]) == (1, Phase.CHECKPOINT)
    assert (waiting["op"], waiting["for_ns"]) == (Op.BROADCAST, 700)


def test_both_ends_of_a_send_count_alike() -> None:
    recorder = recorder_of(Agent(), HandClock())

    sends = [recorder.enter(0, Op.SEND, peer=1)[3] for _ in range(2)]
    receives = [recorder.enter(0, Op.RECEIVE, peer=1)[3], recorder.enter(0, Op.SEND, peer=2)[3]]

    assert (sends, receives) == ([1, 2], [1, 1])


def test_an_error_leaves_at_once() -> None:
    agent, clock = Agent(), HandClock()
    recorder = recorder_of(agent, clock)
    token = recorder.enter(0, Op.ALL_REDUCE)
    clock.now_ns += 9

    recorder.failed(token, Failure.CONNECTION)

    (error,) = agent.got(Kind.ERROR)
    assert (error["size"], error["at_ns"], error["for_ns"]) == (Failure.CONNECTION, 1_009, 9)


def test_a_full_ring_drops_its_oldest_records_and_counts_them() -> None:
    agent, clock = Agent(), HandClock()
    recorder = recorder_of(agent, clock, ring=10)

    for _ in range(25):
        recorder.exit(recorder.enter(0, Op.ALL_REDUCE))
    recorder.flush()

    assert [done["seq"] for done in agent.got(Kind.OPERATION)] == list(range(16, 26))
    assert recorder.dropped == 15


def test_records_for_an_agent_that_is_gone_are_dropped_and_counted() -> None:
    agent, clock = Agent(), HandClock()
    recorder = recorder_of(agent, clock)
    agent.gone = True
    recorder.exit(recorder.enter(0, Op.ALL_REDUCE))
    recorder.flush()
    agent.gone = False
    recorder.exit(recorder.enter(0, Op.ALL_REDUCE))
    recorder.flush()

    assert len(agent.got(Kind.OPERATION)) == 1
    assert recorder.dropped == 1


def test_a_second_exit_of_an_operation_counts_for_nothing() -> None:
    agent = Agent()
    recorder = recorder_of(agent, HandClock())
    token = recorder.enter(0, Op.ALL_REDUCE)

    recorder.exit(token)
    recorder.exit(token)
    recorder.flush()

    assert len(agent.got(Kind.OPERATION)) == 1


def test_more_records_than_a_frame_holds_leave_in_several_frames() -> None:
    agent = Agent()
    recorder = recorder_of(agent, HandClock(), ring=5_000)

    for _ in range(2_500):
        recorder.exit(recorder.enter(0, Op.ALL_REDUCE))
    recorder.flush()

    assert [len(frame) // 32 - 1 for frame in agent.frames] == [1_000, 1_000, 500]


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.sock")


@pytest.fixture
def agent_socket(socket_path: str) -> Iterator[AgentSocket]:
    with closing(AgentSocket(socket_path)) as opened:
        yield opened


def listening(path: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind(path)
    return server


def test_frames_arrive_at_the_agents_socket(socket_path: str, agent_socket: AgentSocket) -> None:
    with listening(socket_path) as server:
        recorder = Recorder(agent_socket, rank=0)
        recorder.exit(recorder.enter(0, Op.ALL_REDUCE))
        recorder.flush()

        assert records.checked(server.recv(1 << 16)) == ""


def test_a_socket_that_nothing_reads_never_blocks_the_job(socket_path: str, agent_socket: AgentSocket) -> None:
    with listening(socket_path):
        recorder = Recorder(agent_socket, rank=0)

        for _ in range(1_000):
            recorder.exit(recorder.enter(0, Op.ALL_REDUCE))
            recorder.flush()

        assert recorder.dropped > 0


def test_a_forked_child_of_the_job_says_nothing_in_its_name(socket_path: str, agent_socket: AgentSocket) -> None:
    with listening(socket_path) as server:
        recorder = Recorder(agent_socket, rank=0)
        recorder.exit(recorder.enter(0, Op.ALL_REDUCE))

        child = os.fork()
        if not child:
            recorder.failed(None, Failure.OWN)
            recorder.end()
            os._exit(0)
        os.waitpid(child, 0)
        recorder.flush()

        server.setblocking(False)
        rows = np.frombuffer(server.recv(1 << 16)[32:], dtype=np.dtype(list(FIELDS)))
        assert rows["kind"].tolist() == [Kind.OPERATION]
        with pytest.raises(BlockingIOError):
            server.recv(1 << 16)


@pytest.mark.parametrize("hostile", ["absent", "file", "stream", "restarted"])
def test_a_job_survives_a_dead_or_hostile_socket(socket_path: str, agent_socket: AgentSocket, hostile: str) -> None:
    server = None
    if hostile == "file":
        Path(socket_path).write_text("no socket")
    if hostile == "stream":
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(socket_path)
    if hostile == "restarted":
        listening(socket_path).close()
    recorder = Recorder(agent_socket, rank=0)

    recorder.exit(recorder.enter(0, Op.ALL_REDUCE))
    recorder.beat()

    assert recorder.dropped >= 1
    if server is not None:
        server.close()


def test_the_recorder_imports_the_standard_library_only() -> None:
    script = "import sys, tonnage.recorder; print(sorted(set(sys.modules) & {'numpy', 'torch', 'cluster', 'health'}))"

    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603

    assert printed.stdout.strip() == "[]"


def test_a_group_that_is_joined_later_is_introduced_by_the_next_beat() -> None:
    agent, clock = Agent(), HandClock()
    recorder = recorder_of(agent, clock)
    recorder.beat()

    recorder.join("dp0", (1, 3), Role.DATA)
    recorder.beat()
    recorder.beat()

    assert [row["step"] for row in agent.got(Kind.MEMBER)] == [2]


def test_a_recorder_of_a_job_that_queues_ahead_says_so_with_its_place() -> None:
    agent, clock = Agent(), HandClock()
    recorder = recorder_of(agent, clock)
    recorder.place(stage=0, replica=0, ranks=4)
    recorder.beat()
    recorder.bear(Times.QUEUED)
    recorder.beat()

    assert [each["op"] for each in agent.got(Kind.PLACE)] == [Times.HOST, Times.QUEUED]


def test_an_operation_belongs_to_the_step_that_it_was_issued_in() -> None:
    """A host that queues ahead is in the next step when the device ends it, and each host by another margin."""
    agent, clock = Agent(), HandClock()
    recorder = recorder_of(agent, clock)
    recorder.step(3)
    token = recorder.enter(0, Op.ALL_REDUCE)
    recorder.step(4)
    recorder.exit(token, on_device=(2_000, 2_300))
    recorder.beat()

    (done,) = agent.got(Kind.OPERATION)
    assert (done["step"], done["at_ns"], done["for_ns"]) == (3, 2_000, 300)
