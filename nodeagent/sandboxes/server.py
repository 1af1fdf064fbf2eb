"""Reception: what clients in the pods ask for, and what they are told. One socket per pod, quotas for each.

A client's process connects and asks; when it is admitted it is moved into its call's leaf, where it becomes the
command. The kernel says which process that is (SO_PEERCRED, a pidfd) and in which cgroup; everything else is the
ledger's. What a client gets wrong costs its own pod alone.
"""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import structlog

from cluster.clock import Clock
from isolation import state as act
from isolation.admission import bytes_from, claim_bytes, command_class
from isolation.orders import Verdict, ended, refused
from isolation.state import ADVICE, Reason, Request
from isolation.tree import CALL_PREFIX, is_below
from nodeagent.process_files import visible_group_in
from nodeagent.sandboxes.enforcer import CallEnd, Enforcer
from nodeagent.sandboxes.sockets import (
    LONGEST_BYTES,
    BadMessageError,
    CallRequest,
    ConnectedProcess,
    End,
    Exited,
    Resume,
    bounded_wait_s,
    group_of,
    message_from,
    open_door,
    parent_of,
    peer_of,
    pid_of,
    proc_text,
    remove_door,
    state_packet,
    verdict_packet,
)
from nodeagent.socket_protection import MOST_PASSED, Closer, TokenBucket, full

log = structlog.get_logger(__name__)

MESSAGES_PER_S, MESSAGES_AT_ONCE = 50.0, 100.0
"""Connections and messages of one pod: 20 calls a second in the long run. Chosen: an agent starts a few a second."""
CONNECTIONS = 64
"""Open connections of one pod: twice the calls that it may have."""
SILENT_S = 5.0
"""Time in which a new connection has to ask."""
CLASSES = 32
"""Command classes learned from one pod; a client names programs as it likes."""


@dataclass(slots=True)
class ClientConnection:
    """One connection."""

    line: socket.socket
    sandbox: str
    peer: ConnectedProcess
    closer: Closer
    """That of its pod, which it may outlive."""
    since_s: float
    call: str | None = None
    """None: it has not asked yet, or nothing came of it."""
    light: bool = False
    nested: bool = False
    """Whether the asker runs in a call already: that call's lease holds for it too."""
    killed_for: Reason | None = None
    exit_code: int | None = None
    end: CallEnd | None = None
    concluded: bool = False
    """Whether it has its verdict, while processes that the call left behind run on."""


@dataclass(slots=True)
class ServedPod:
    """One pod's door, and who came in."""

    door: socket.socket | None
    tenant: str
    tokens: TokenBucket
    closer: Closer = field(default_factory=Closer)
    is_open: bool = True
    visits: set[int] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    counts: dict[tuple[str, Reason], int] = field(default_factory=dict)
    """(happening, reason) → how often, since this process started."""


class SandboxServer:
    """Serves the pods of one node. Not for several threads."""

    def __init__(self, enforcer: Enforcer, folder: Path, clock: Clock, new_name: Callable[[], str]) -> None:
        """folder: holds each pod's own. new_name: an unused name for a call, never a client's."""
        self._enforcer, self._folder, self._clock, self._new_name = enforcer, folder, clock, new_name
        self._pods: dict[str, ServedPod] = {}
        self._doors: dict[int, str] = {}
        self._visits: dict[int, ClientConnection] = {}
        self._calls: dict[str, int] = {}
        """Call → the connection of its client; one that hung up has none."""

    @property
    def pods(self) -> dict[str, ServedPod]:
        return self._pods

    def open(self, uid: str, tenant: str) -> None:
        """Opens a pod's socket; a pod that blocks its own folder has none."""
        door = None
        try:
            door = open_door(self._folder, uid)
        except OSError as error:
            log.warning("a pod's socket cannot be made", pod=uid, why=str(error))
        self._pods[uid] = ServedPod(door, tenant, full(MESSAGES_PER_S, MESSAGES_AT_ONCE, self._clock()))
        if door is not None:
            self._doors[door.fileno()] = uid
            self._enforcer.watch(door.fileno())

    def close(self, uid: str) -> None:
        pod = self._pods.pop(uid)
        for number in tuple(pod.visits):
            self._hang_up(number)
        if pod.door is not None:
            del self._doors[pod.door.fileno()]
            if pod.is_open:
                self._enforcer.unwatch(pod.door.fileno())
            _end(pod.door, pod.closer)
            remove_door(self._folder, uid)
        pod.closer.end()

    def listen_to(self, descriptor: int) -> None:
        """Has `turn` return when the descriptor can be read, such as the one of orders."""
        self._enforcer.watch(descriptor)

    def turn(self, longest_s: float) -> None:
        """Waits for an event, a timer or a client, and serves it."""
        shut = any(not pod.is_open for pod in self._pods.values())
        silent = any(visit.call is None for visit in self._visits.values())
        ready, notices = self._enforcer.wait(min(longest_s, 0.1 if shut else SILENT_S if silent else longest_s))
        self._tell(notices)
        for number in ready:
            if (uid := self._doors.get(number)) is not None:
                self._arrival(uid)
            elif number in self._visits:
                self._heard(number)
        self._tell(self._enforcer.take_notices())
        self._open_again()
        self._end_silent()

    def _arrival(self, uid: str) -> None:
        """One new connection, if the pod may have another."""
        pod = self._pods[uid]
        assert pod.door is not None  # noqa: S101 - watched
        if pod.closer.is_stuck or not self._may(pod):
            pod.is_open = False
            self._enforcer.unwatch(pod.door.fileno())
            return
        try:
            line, _ = pod.door.accept()
        except OSError:
            return
        line.setblocking(False)
        peer = peer_of(line)
        if peer is None or len(pod.visits) >= CONNECTIONS:
            _send(line, verdict_packet(refused("TOO_MANY_CALLS" if peer else "UNKNOWN_SANDBOX", 1.0)))
            _end(line, pod.closer)
            if peer is not None:
                peer.close()
            return
        number = line.fileno()
        self._visits[number] = ClientConnection(line, uid, peer, pod.closer, self._clock())
        pod.visits.add(number)
        self._enforcer.watch(number)

    def _may(self, pod: ServedPod) -> bool:
        tokens = pod.tokens.filled(self._clock())
        pod.tokens = tokens.taken() or tokens
        return pod.tokens is not tokens

    def _open_again(self) -> None:
        for pod in self._pods.values():
            if pod.is_open or pod.door is None or pod.closer.is_stuck:
                continue
            if pod.tokens.filled(self._clock()).left >= 1:
                pod.is_open = True
                self._enforcer.watch(pod.door.fileno())

    def _end_silent(self) -> None:
        before_s = self._clock() - SILENT_S
        late = [n for n, visit in self._visits.items() if visit.call is None and visit.since_s < before_s]
        for number in late:
            if not (self._visits[number].light or self._visits[number].nested):
                self._hang_up(number)

    def _heard(self, number: int) -> None:
        """One packet of a client; one that writes too much, or what is no message, is hung up on."""
        visit = self._visits[number]
        if visit.closer.is_stuck:
            self._hang_up(number)
            return
        passed: list[int] = []
        try:
            # Room for all that may come: what the kernel closes itself, it closes here.
            packet, passed, _, _ = socket.recv_fds(visit.line, LONGEST_BYTES + 1, MOST_PASSED, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        try:
            self._received(number, visit, packet, passed)
        finally:
            visit.closer.close_all(passed)

    def _received(self, number: int, visit: ClientConnection, packet: bytes, passed: Sequence[int]) -> None:
        if not packet or not self._may(self._pods[visit.sandbox]):
            self._hang_up(number)
            return
        try:
            message = message_from(packet)
        except BadMessageError as error:
            log.info("a client's message refused", pod=visit.sandbox, why=str(error))
            self._last_word(number, refused("INVALID_HINT", 0.0))
            return
        match message:
            case CallRequest() if visit.call is None and not (visit.light or visit.nested):
                self._asked(number, visit, message)
            case Resume() if passed and visit.call is None and not (visit.light or visit.nested):
                self._resumed(number, visit, passed[0])
            case Exited(code) if visit.exit_code is None and (visit.call or visit.light or visit.nested):
                visit.exit_code = code
                self._conclude(number, visit)
            case End() if visit.call is not None and visit.call in self._enforcer.state.calls:
                self._enforcer.kill(visit.call)
            case _:
                self._hang_up(number)

    def _asked(self, number: int, visit: ClientConnection, ask: CallRequest) -> None:
        sandbox = self._enforcer.state.ledger.sandboxes.get(visit.sandbox)
        group = group_of(visit.peer)
        home = self._enforcer.tree.home(visit.sandbox)
        if sandbox is None or group is None or not is_below(group, home):
            self._last_word(number, refused("UNKNOWN_SANDBOX", 0.0))
            return
        hint = None if ask.mem is None else bytes_from(ask.mem)
        if ask.mem is not None and hint is None:
            self._last_word(number, refused("INVALID_HINT", 0.0))
            return
        if group.startswith(f"{home}/{CALL_PREFIX}"):
            # A call that waited for another while it holds its lease could wait for ever.
            visit.nested = True
            _send(visit.line, state_packet("admitted", "FITS", nested=True))
            return
        kind = self._class_of(self._pods[visit.sandbox], command_class(ask.command))
        if hint is None and kind.endswith("/light"):
            self._admit_light(number, visit)
            return
        settings = self._enforcer.settings
        claim = claim_bytes(hint, kind, sandbox, self._enforcer.state.learned, settings.learned_fraction)
        wait_s = bounded_wait_s(ask.wait_s, settings.longest_wait_s)
        visit.call = self._new_name()
        self._calls[visit.call] = number
        self._enforcer.ask(
            Request(visit.call, visit.sandbox, self._clock(), claim, kind, declared=hint is not None, wait_s=wait_s)
        )

    def _resumed(self, number: int, visit: ClientConnection, pidfd: int) -> None:
        """A client of an earlier process takes up its call: the one in whose leaf the process is that it shows."""
        tree = self._enforcer.tree
        group = visible_group_in(proc_text(pid_of(pidfd), "cgroup")) or ""
        asker = group_of(visit.peer)
        leaves = f"{tree.home(visit.sandbox)}/{CALL_PREFIX}"
        call = group.removeprefix(leaves)
        is_own = asker is not None and is_below(asker, tree.home(visit.sandbox)) and group.startswith(leaves)
        if not is_own or call not in self._enforcer.state.calls or call in self._calls:
            self._last_word(number, refused("UNKNOWN_SANDBOX", 0.0))
            return
        visit.call = call
        self._calls[call] = number
        _send(visit.line, state_packet("admitted", "FITS", resumed=True))

    def _class_of(self, pod: ServedPod, kind: str) -> str:
        """The class under its tenant's name; a pod that invents programs has one class for the rest of them."""
        if kind not in pod.classes and len(pod.classes) >= CLASSES:
            kind = "other:"
        pod.classes.add(kind)
        return f"{pod.tenant}/{kind}"

    def _admit_light(self, number: int, visit: ClientConnection) -> None:
        if self._moved(visit, self._enforcer.tree.light_group(visit.sandbox)):
            visit.light = True
            _send(visit.line, state_packet("admitted", "FITS", light=True))
        else:
            self._hang_up(number)

    def _moved(self, visit: ClientConnection, group: str) -> bool:
        """Whether the visitor's own process is in the leaf now.

        Its pid could have become another's between the look and the move. A pidfd that lives after the move proves that
        it did not; otherwise what was moved goes back to where its parent is.
        """
        if not visit.peer.is_alive():
            return False
        with suppress(OSError):
            self._enforcer.tree.attach(group, visit.peer.pid)
        with suppress(OSError):
            is_in = visit.peer.pid in self._enforcer.tree.pids(group)
            if is_in and not visit.peer.is_alive():
                self._put_back(visit.peer.pid)
                return False
            return is_in
        return False

    def _put_back(self, pid: int) -> None:
        text = proc_text(parent_of(pid), "cgroup")
        home = next((line[3:].strip("/") for line in text.splitlines() if line.startswith("0::")), "")
        log.warning("a process that took over a pid is moved back", pid=pid, group=home)
        self._enforcer.tree.attach(home, pid)

    def _tell(self, notices: list[act.Action]) -> None:
        for action in notices:
            self._noted(action)
        for end in self._enforcer.take_ends():
            if (number := self._calls.get(end.call)) is not None:
                visit = self._visits[number]
                visit.end = end
                self._conclude(number, visit)

    def _noted(self, action: act.Action) -> None:
        match action:
            case act.Admit(call, _, lease_bytes):
                self._admitted(call, lease_bytes)
            case act.Refuse(call, retry_after_s, reason):
                self._count(call, "Refused", reason)
                if (number := self._calls.get(call)) is not None:
                    self._last_word(number, refused(reason, retry_after_s))
            case act.Queue(call, retry_after_s, reason):
                self._say(call, "queued", reason, retry_after_s=retry_after_s)
            case act.SetCpuWeight(call, weight, reason):
                if weight < 100:
                    self._count(call, "Throttled", reason)
                    self._say(call, "throttled", reason)
            case act.Freeze(call, reason):
                self._count(call, "Frozen", reason)
                self._say(call, "frozen", reason, longest_s=self._enforcer.settings.frozen_s)
            case act.Thaw(call, reason):
                self._say(call, "thawed", reason)
            case act.Kill(call, reason):
                self._count(call, "ToolCallKilled", reason)
                if (number := self._calls.get(call)) is not None:
                    self._visits[number].killed_for = reason
                self._say(call, "killed", reason, advice=ADVICE.get(reason, ""))
            case act.KillAgent(sandbox, reason):
                self._count_for(sandbox, "AgentKilled", reason)
            case act.AskToShrink(sandbox, reason):
                for call, number in self._calls.items():
                    if self._visits[number].sandbox == sandbox:
                        self._say(call, "shrink", reason)
            case act.SetLease() | act.SetAgentLease() | act.Reclaim():
                pass

    def _admitted(self, call: str, lease_bytes: int) -> None:
        number = self._calls.get(call)
        if number is None:  # its client hung up in this very turn
            self._enforcer.abandon(call)
            return
        visit = self._visits[number]
        if not self._moved(visit, self._enforcer.tree.call_group(visit.sandbox, call)):
            self._hang_up(number)
            return
        self._say(call, "admitted", "FITS", lease_bytes=lease_bytes)

    def _conclude(self, number: int, visit: ClientConnection) -> None:
        """The verdict, when the exit code is known: what the kernel counted of the leaf, gone or still there."""
        if visit.exit_code is None:
            return
        if visit.concluded:  # what it left behind is gone too
            self._hang_up(number)
            return
        if visit.call is None:
            code = 128 - visit.exit_code if visit.exit_code < 0 else visit.exit_code
            outcome: Literal["signalled", "exited"] = "signalled" if visit.exit_code < 0 else "exited"
            self._last_word(number, Verdict(outcome, code, None, 0, None, None, ""))
            return
        end = visit.end or self._enforcer.facts_of(visit.call)
        if end is None:
            self._hang_up(number)
            return
        verdict = ended(visit.exit_code, end.events, visit.killed_for, end.peak_bytes, end.limit_bytes)
        if verdict.outcome == "out_of_memory":
            self._count_for(visit.sandbox, "ToolCallKilled", "OUTGREW_CLAIM")
        if visit.end is None and (left := self._processes_of(visit)):
            visit.concluded = True
            _send(visit.line, verdict_packet(verdict, left))
            return
        self._last_word(number, verdict)

    def _count(self, call: str, happening: str, reason: Reason) -> None:
        running = self._enforcer.state.calls.get(call)
        number = self._calls.get(call)
        if running is not None:
            self._count_for(running.request.sandbox, happening, reason)
        elif number is not None:
            self._count_for(self._visits[number].sandbox, happening, reason)

    def _count_for(self, sandbox: str, happening: str, reason: Reason) -> None:
        if (pod := self._pods.get(sandbox)) is not None:
            pod.counts[happening, reason] = pod.counts.get((happening, reason), 0) + 1

    def _say(self, call: str, state: str, reason: Reason, **figures: float | str) -> None:
        if (number := self._calls.get(call)) is not None:
            _send(self._visits[number].line, state_packet(state, reason, **figures))

    def _last_word(self, number: int, verdict: Verdict) -> None:
        _send(self._visits[number].line, verdict_packet(verdict))
        self._hang_up(number)

    def _hang_up(self, number: int) -> None:
        """Ends a connection. A queued call goes with it; a running one stays until its last process ends."""
        visit = self._visits.pop(number)
        self._enforcer.unwatch(number)
        self._pods_visits(visit.sandbox).discard(number)
        _end(visit.line, visit.closer)
        if visit.call is not None:
            self._calls.pop(visit.call, None)
            self._enforcer.withdraw(visit.call)
            if not self._processes_of(visit):
                self._enforcer.abandon(visit.call)
        visit.peer.close()

    def _pods_visits(self, uid: str) -> set[int]:
        pod = self._pods.get(uid)
        return pod.visits if pod is not None else set()

    def _processes_of(self, visit: ClientConnection) -> int:
        """Processes in the visitor's own call."""
        tree = self._enforcer.tree
        with suppress(OSError):
            return len(tree.pids(tree.call_group(visit.sandbox, visit.call or "")))
        return 0


def _send(line: socket.socket, packet: bytes) -> None:
    """Sends what the client has room for; one that does not read misses it."""
    with suppress(OSError):
        line.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def _end(line: socket.socket, closer: Closer) -> None:
    """The other end hears of it now; closing it also closes what lies unread in its queue."""
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    closer.close(line.close)


def new_call_name() -> str:
    """Random name of a call."""
    return os.urandom(8).hex()
