"""Recorder of a training job's collective operations: frames of records to the node agent over a Unix socket.

    recorder = Recorder.started(rank=rank, socket_path="/run/tonnage/recorder.sock")
    token = recorder.enter(group, Op.ALL_REDUCE, size_bytes)
    ...
    recorder.exit(token)

It never blocks the job and never raises into it. Records wait in a ring; when the ring is full the oldest is dropped,
when the socket is gone or full the frame is dropped, and both are counted. A thread beats four times a second: it sends
what finished since, the operations in flight, and the phase. When nothing finished for two seconds it sends once where
the job's main thread is: names of functions and lines of files, no values.
"""

import itertools
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import sqrt

from tonnage import records
from tonnage.records import FRAME_RECORDS, NO_PEER, Failure, Kind, Op, Phase, Role, Times

BEAT_S = 0.25
"""Time between two heartbeats; a hang is seen 3.5 s after its last exit, so four a second cost little latency."""
RING = 16_384
"""Records that wait at most: 8 s at 2,000 operations a second, half a MB."""
INTRODUCTION_BEATS = 40
"""Beats between two introductions: an agent that restarted knows groups and place within 10 s."""
MOST_IN_FLIGHT = 64
"""Operations in flight that a heartbeat names, the oldest first; more are a backlog, whose oldest tell the cause."""
STILL_S = 2.0
"""Time without a finished operation after which the stack is sampled: before a hang is judged, after 3 s."""
STACK_EVERY_S = 10.0
"""Shortest time between two samples, so that a job of long steps is sampled seldom."""
STACK_FRAMES = 24
FAULT_NS = 86_400e9 / 4.2e-3
"""Time from one stop of a node to its next: `FAULTS_PER_NODE_S` of `health/remediation/advice.py`."""
_OPERATION, _ERROR = int(Kind.OPERATION), int(Kind.ERROR)
_FROM_ENTER = (_OPERATION, int(Kind.IN_FLIGHT))
"""Numbers, as a look at a member of an enumeration takes as long as half a record."""

Send = Callable[[bytes], None]
Token = tuple[int, int, int, int, int, int, int, int]
"""Operation in flight: serial number, op, group, sequence number, enter, peer, size class, step."""
Entry = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
"""A token, then exit, phase, kind and failure."""


@dataclass(frozen=True, slots=True)
class Group:
    """Process group of this rank."""

    number: int
    key: int
    index: int
    """Place of this rank among its members."""
    members: int
    role: Role


class AgentSocket:
    """Unix datagram socket to the node agent. A datagram that cannot leave at once is not sent."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def __call__(self, datagram: bytes) -> None:
        """Raises OSError when it did not leave; the next call connects again."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._socket.sendto(datagram, self._path)
        except BlockingIOError:
            raise
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.close()


class Recorder:
    """Records of one rank, on their way to the agent."""

    def __init__(
        self,
        send: Send,
        *,
        rank: int,
        incarnation: int = 0,
        ring: int = RING,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
        stack: Callable[[], str] | None = None,
    ) -> None:
        """stack: where the job is now, by default its main thread; a function that returns nothing turns it off."""
        self._send, self._rank, self._incarnation = send, rank, incarnation
        self._process = os.getpid()
        self._now, self._wall = clock, wall
        self._ring: deque[Entry] = deque(maxlen=ring)
        self._in_flight: dict[int, Token] = {}
        self._groups: dict[int, Group] = {}
        self._sequences: dict[tuple[int, int, int], int] = {}
        self._serials, self._records = itertools.count(1), itertools.count(1)  # `next` is atomic, `+= 1` is not
        self._recorded = self._taken = self._unsent = self._beats = 0
        self._step = 0
        self._phase = int(Phase.COMPUTE)
        self._stage, self._replica, self._ranks = 0, 0, 0
        self._is_introduced = False
        self._times = Times.HOST
        self._last_exit_ns = clock()
        self._stack = main_stack if stack is None else stack
        self._saved_ns, self._save_ns = clock(), 0
        self._samples, self._sampled_ns = 0, clock() - int(STACK_EVERY_S * 1e9)
        self._sampled_exit_ns = 0
        self._stopped = threading.Event()
        self._flushing = threading.Lock()

    @classmethod
    def started(cls, *, rank: int, socket_path: str, incarnation: int = 0, stacks: bool = True) -> "Recorder":
        """Recorder with its beating thread, which ends with the process. stacks: whether stacks are sampled."""
        stack = None if stacks else str
        recorder = cls(AgentSocket(socket_path), rank=rank, incarnation=incarnation, stack=stack)
        threading.Thread(target=recorder._beat_until_stopped, name="tonnage-recorder", daemon=True).start()
        return recorder

    # What the job calls: a few dictionary and deque operations, no lock, no system call but the clock.

    def place(self, *, stage: int, replica: int, ranks: int) -> None:
        """States the pipeline stage and data-parallel replica: ranks are compared within a stage only."""
        self._stage, self._replica, self._ranks = stage, replica, ranks
        self._is_introduced = False

    def bear(self, times: Times) -> None:
        """States whose times the operations bear."""
        if times is not self._times:
            self._times, self._is_introduced = times, False

    def join(self, name: str, ranks: Sequence[int], role: Role = Role.OTHER) -> int:
        """Number of a process group of this rank; `ranks` in the group's order."""
        key = records.group_key(name, ranks)
        for group in self._groups.values():
            if group.key == key:
                return group.number
        index = ranks.index(self._rank) if self._rank in ranks else 0
        number = len(self._groups)
        self._groups[number] = Group(number, key, index, len(ranks), role)
        self._is_introduced = False
        return number

    def enter(self, group: int, op: int, size_bytes: int = 0, peer: int = NO_PEER) -> Token:
        """Start of an operation; `peer` is the other's index in the group for sends and receives.

        Sequence numbers count per group, and per peer and direction for point-to-point operations, so both ends agree.
        """
        counter = (group, op if peer != NO_PEER else -1, peer)
        seq = self._sequences.get(counter, 0) + 1
        self._sequences[counter] = seq
        serial = next(self._serials)
        token = (serial, op, group, seq, self._now(), peer, records.size_class(size_bytes), self._step)
        self._in_flight[serial] = token
        return token

    def exit(self, token: Token, on_device: tuple[int, int] | None = None) -> None:
        """End of an operation; a second exit of the same operation counts for nothing.

        on_device: when a device began and ended it, nanoseconds of the monotonic clock; None: the host's enter and now.
        """
        if self._in_flight.pop(token[0], None) is None:
            return
        self._last_exit_ns = exit_ns = self._now()
        serial, op, group, seq, enter_ns, peer, size, step = token
        if on_device is not None:
            enter_ns, exit_ns = on_device
        self._record((serial, op, group, seq, enter_ns, peer, size, step, exit_ns, self._phase, _OPERATION, 0))

    def failed(self, token: Token | None, failure: Failure = Failure.OTHER) -> None:
        """An operation ended by an error, or with None an exception of the job itself; sent at once."""
        known = token or (0, int(Op.OTHER), 0, 0, self._now(), NO_PEER, 0, self._step)
        self._in_flight.pop(known[0], None)
        self._record((*known, self._now(), self._phase, _ERROR, int(failure)))
        self.flush()

    def step(self, number: int) -> None:
        """Number of the training step that begins."""
        self._step = number

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Marks what the job does meanwhile: a checkpoint is no straggler."""
        before, began_ns, self._phase = self._phase, self._now(), int(phase)
        try:
            yield
        finally:
            self._phase = before
            if phase is Phase.CHECKPOINT:
                self._saved_ns = self._now()
                self._save_ns = self._saved_ns - began_ns

    def is_save_due(self, nodes: int) -> bool:
        """Whether a job on so many nodes loses less by saving now than by going on; one rank asks and tells the others.

        After the interval of `tonnage health advise` (Young's, by what the last save took); before the first save, now.
        """
        return self._now() - self._saved_ns >= sqrt(2 * self._save_ns * FAULT_NS / nodes)

    def end(self) -> None:
        """Announces the rank's orderly end and stops the thread."""
        self._stopped.set()
        now_ns = self._now()
        self._record((0, 0, 0, 0, now_ns, NO_PEER, 0, self._step, now_ns, self._phase, int(Kind.END), 0))
        self.flush()

    @property
    def dropped(self) -> int:
        """Records that never reached the agent."""
        return self._unsent + max(0, self._recorded - self._taken - len(self._ring))

    def _record(self, entry: Entry) -> None:
        self._ring.append(entry)  # a full ring drops its oldest entry
        self._recorded = next(self._records)

    # The thread's side.

    def beat(self) -> None:
        """Sends what finished, the operations in flight and the phase."""
        self._beats += 1
        if self._beats % INTRODUCTION_BEATS == 1 or not self._is_introduced:
            self._is_introduced = True  # before it is made: what is joined meanwhile is introduced by the next beat
            self._deliver(self._introduction())
        self.flush()
        self._deliver(self._heartbeat())
        self._deliver(self._stack_sample())

    def flush(self) -> None:
        """Sends what finished."""
        if self._flushing.acquire(blocking=False):  # the other thread that flushes takes these records along
            try:
                taken: list[bytes] = []
                while self._ring and len(taken) < RING:
                    taken.append(_packed(self._ring.popleft()))
                self._taken += len(taken)
                self._deliver(taken)
            finally:
                self._flushing.release()

    def _heartbeat(self) -> list[bytes]:
        now_ns = self._now()
        in_flight = list(self._in_flight.values())[:MOST_IN_FLIGHT]
        beat = records.packed(
            Kind.BEAT,
            group=len(in_flight),
            seq=self._beats,
            at_ns=now_ns,
            for_ns=now_ns - self._last_exit_ns,
            step=self._step,
            phase=self._phase,
        )
        now = self._step, now_ns, self._phase, int(Kind.IN_FLIGHT), 0
        return [beat, *(_packed((*token[:7], *now)) for token in in_flight)]

    def _stack_sample(self) -> list[bytes]:
        """Where the job stands, once for each time that it stands still; a frame of its own."""
        now_ns, exit_ns = self._now(), self._last_exit_ns
        is_still = now_ns - exit_ns >= STILL_S * 1e9 and exit_ns != self._sampled_exit_ns
        if not is_still or self._phase != Phase.COMPUTE or now_ns - self._sampled_ns < STACK_EVERY_S * 1e9:
            return []
        self._sampled_ns, self._sampled_exit_ns = now_ns, exit_ns
        self._samples += 1
        return records.text_pieces(self._stack().encode("ascii", "replace"), self._samples)

    def _introduction(self) -> list[bytes]:
        place = records.packed(Kind.PLACE, op=self._times, seq=self._stage, at_ns=self._replica, step=self._ranks)
        return [
            place,
            *(
                records.packed(
                    Kind.MEMBER, op=group.role, group=group.number, seq=group.index, at_ns=group.key, step=group.members
                )
                for group in list(self._groups.values())
            ),
        ]

    def _deliver(self, packed: Sequence[bytes]) -> None:
        if os.getpid() != self._process:  # a fork of the job, such as a loader of data, is not the rank
            return
        for start in range(0, len(packed), FRAME_RECORDS):
            part = packed[start : start + FRAME_RECORDS]
            try:
                self._send(self._frame(part))
            except OSError:  # no agent, or one that does not read: the job runs on
                self._unsent += len(part)

    def _frame(self, part: Sequence[bytes]) -> bytes:
        now_ns = self._now()
        return records.frame(
            part,
            rank=self._rank,
            at_ns=now_ns,
            wall_minus_ns=self._wall() - now_ns,
            incarnation=self._incarnation,
            dropped=self.dropped,
        )

    def _beat_until_stopped(self) -> None:
        while not self._stopped.wait(BEAT_S):
            with suppress(Exception):  # whatever happens to a heartbeat, the job must not notice
                self.beat()


def main_stack() -> str:
    """Frames of the process's main thread, the innermost first: `folder/file.py:line function`, one a line."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    lines: list[str] = []
    while frame is not None and len(lines) < STACK_FRAMES:
        code = frame.f_code
        file = "/".join(code.co_filename.replace("\\", "/").split("/")[-2:])
        lines.append(f"{file}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return "\n".join(lines)


def _packed(entry: Entry) -> bytes:
    """As `records.packed`, four times as fast: there is one of each operation."""
    _, op, group, seq, enter_ns, peer, size, step, exit_ns, phase, kind, failure = entry
    return records.RECORD.pack(
        kind,
        op & 0xFF,
        group & 0xFFFF,
        seq & 0xFFFFFFFF,
        enter_ns if kind in _FROM_ENTER else exit_ns,
        exit_ns - enter_ns if exit_ns > enter_ns else 0,
        step & 0xFFFFFFFF,
        peer & 0xFFFF,
        failure if kind == _ERROR else size,
        phase,
    )
