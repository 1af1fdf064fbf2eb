"""Server of tool calls: what clients in the pods ask for, and what they are answered. One socket per pod, with quotas.

A client's process connects and asks; when it is admitted it is moved into its call's leaf, where it becomes the
command. The kernel says which process that is (SO_PEERCRED, a pidfd) and in which cgroup; everything else is the
ledger's. What a client gets wrong costs its own pod alone.
"""

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
from isolation.orders import CallVerdict, ended, refused
from isolation.state import ADVICE, CallDemand, Reason
from isolation.tree import CALL_PREFIX, is_below
from nodeagent.process_files import visible_group_in
from nodeagent.sandboxes import sockets
from nodeagent.sandboxes.enforcer import CallEnd, Enforcer
from nodeagent.sandboxes.found_calls import FOUND, FoundCalls
from nodeagent.socket_protection import MOST_PASSED, Closer, TokenBucket

log = structlog.get_logger(__name__)

MESSAGES_PER_S, MESSAGES_AT_ONCE = 50.0, 100.0
"""Connections and messages of one pod: 20 calls a second in the long run. Chosen: an agent starts a few a second."""
CONNECTIONS = 64
"""Open connections of one pod: twice the calls that it may have."""
SILENT_S = 5.0
"""Time in which a new connection has to ask."""
CLASSES, OTHERS = 32, "other:others"
"""Command classes learned from one pod, which names programs as it likes, and the class of the rest."""


@dataclass(slots=True)
class ClientConnection:
    """One connection."""

    opened: socket.socket
    sandbox: str
    peer: sockets.ConnectedProcess
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

    @property
    def has_asked(self) -> bool:
        """Whether something came of its request."""
        return self.call is not None or self.light or self.nested

    def send(self, packet: bytes) -> None:
        """Sends what the client has room for; one that does not read misses it."""
        with suppress(OSError):
            self.opened.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


@dataclass(slots=True)
class ServedPod:
    """One pod's socket, and who is connected."""

    listener: socket.socket | None
    tenant: str
    tokens: TokenBucket
    closer: Closer = field(default_factory=Closer)
    is_open: bool = True
    connections: set[int] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    counts: dict[tuple[str, Reason], int] = field(default_factory=dict)
    """(happening, reason) → how often, since this process started."""

    def kind_of(self, command: Sequence[str]) -> str:
        """Class of a command as this tenant's calls teach it; a pod that invents programs has one for the rest."""
        kind = command_class(command)
        if kind not in self.classes and len(self.classes) >= CLASSES:
            kind = OTHERS
        self.classes.add(kind)
        return f"{self.tenant}/{kind}"


class SandboxServer:
    """Serves the pods of one node. Not for several threads."""

    def __init__(self, enforcer: Enforcer, folder: Path, clock: Clock, new_name: Callable[[], str]) -> None:
        """folder: holds each pod's own. new_name: an unused name for a call, never a client's."""
        self._enforcer, self._folder, self._clock, self._new_name = enforcer, folder, clock, new_name
        self.pods: dict[str, ServedPod] = {}
        self._listeners: dict[int, str] = {}
        self._connections: dict[int, ClientConnection] = {}
        self._calls: dict[str, int] = {}
        """Call → the connection of its client; one that hung up has none, nor has one that was found."""
        self._found = FoundCalls(enforcer, clock, new_name)

    def open(self, uid: str, tenant: str) -> None:
        """Opens a pod's socket; a pod that blocks its own folder has none."""
        listener = None
        try:
            listener = sockets.listening_socket(self._folder, uid)
        except OSError as error:
            log.warning("a pod's socket cannot be made", pod=uid, why=str(error))
        self.pods[uid] = ServedPod(listener, tenant, TokenBucket(MESSAGES_PER_S, MESSAGES_AT_ONCE, self._clock()))
        if listener is not None:
            self._listeners[listener.fileno()] = uid
            self._enforcer.watch(listener.fileno())
        self._found.open(uid, self.pods[uid].kind_of)

    def close(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        self._found.close(uid)
        for number in tuple(pod.connections):
            self._end(number)
        if pod.listener is not None:
            del self._listeners[pod.listener.fileno()]
            if pod.is_open:
                self._enforcer.unwatch(pod.listener.fileno())
            _shut(pod.listener, pod.closer)
            sockets.remove_socket(self._folder, uid)
        pod.closer.end()

    def turn(self, longest_s: float) -> None:
        """Waits for an event, a timer or a client, and serves it."""
        shut = any(not pod.is_open for pod in self.pods.values())
        silent = any(each.call is None for each in self._connections.values())
        longest_s = min(longest_s, max(0.0, self._found.next_s() - self._clock()))
        ready, notices = self._enforcer.wait(min(longest_s, 0.1 if shut else SILENT_S if silent else longest_s))
        self._notify(notices)
        for number in ready:
            if (uid := self._listeners.get(number)) is not None:
                self._accept(uid)
            elif not self._found.take(number) and number in self._connections:
                self._receive(number)
        self._found.look()
        self._notify(self._enforcer.take_notices())
        now_s = self._clock()
        for pod in self.pods.values():
            if pod.is_open or pod.listener is None or pod.closer.is_stuck:
                continue
            if pod.tokens.wait_s(1, now_s) == 0:
                pod.is_open = True
                self._enforcer.watch(pod.listener.fileno())
        for number, each in list(self._connections.items()):
            if each.since_s < now_s - SILENT_S and not each.has_asked:
                self._end(number)

    def _accept(self, uid: str) -> None:
        """One new connection, if the pod may have another."""
        pod = self.pods[uid]
        assert pod.listener is not None  # noqa: S101 - watched
        if pod.closer.is_stuck or not self._may(pod):
            pod.is_open = False
            self._enforcer.unwatch(pod.listener.fileno())
            return
        try:
            opened, _ = pod.listener.accept()
        except OSError:
            return
        opened.setblocking(False)
        peer = sockets.peer_of(opened)
        if peer is None or len(pod.connections) >= CONNECTIONS:
            with suppress(OSError):
                why: Reason = "TOO_MANY_CALLS" if peer else "UNKNOWN_SANDBOX"
                opened.send(sockets.verdict_packet(refused(why, 1.0)), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            _shut(opened, pod.closer)
            if peer is not None:
                peer.close()
            return
        number = opened.fileno()
        self._connections[number] = ClientConnection(opened, uid, peer, pod.closer, self._clock())
        pod.connections.add(number)
        self._enforcer.watch(number)

    def _may(self, pod: ServedPod) -> bool:
        """Whether the pod may connect or write now, which takes one of its tokens."""
        may = pod.tokens.wait_s(1, self._clock()) == 0
        if may:
            pod.tokens.take(1, self._clock())
        return may

    def _receive(self, number: int) -> None:
        """One packet of a client; one that writes too much, or what is no message, is hung up on."""
        client = self._connections[number]
        if client.closer.is_stuck:
            self._end(number)
            return
        passed: list[int] = []
        try:
            # Room for all that may come: what the kernel closes itself, it closes here.
            packet, passed, _, _ = socket.recv_fds(
                client.opened, sockets.LONGEST_BYTES + 1, MOST_PASSED, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        try:
            if not packet or not self._may(self.pods[client.sandbox]):
                self._end(number)
                return
            message = sockets.message_from(packet)
            match message:
                case sockets.CallRequest() if not client.has_asked:
                    self._ask(number, client, message)
                case sockets.Resume() if passed and not client.has_asked:
                    self._resume(number, client, passed[0])
                case sockets.Exited(code) if client.exit_code is None and client.has_asked:
                    client.exit_code = code
                    self._conclude(number, client)
                case sockets.End() if client.call is not None and client.call in self._enforcer.state.calls:
                    self._enforcer.kill(client.call)
                case _:
                    self._end(number)
        except sockets.BadMessageError as error:
            log.info("a client's message refused", pod=client.sandbox, why=str(error))
            self._conclude_with(number, refused("INVALID_HINT", 0.0))
        finally:
            client.closer.close_all(passed)

    def _ask(self, number: int, client: ClientConnection, request: sockets.CallRequest) -> None:
        enforcer, pod = self._enforcer, self.pods[client.sandbox]
        sandbox = enforcer.state.ledger.sandboxes.get(client.sandbox)
        group = sockets.group_of(client.peer)
        home = enforcer.tree.home(client.sandbox)
        if sandbox is None or group is None or not is_below(group, home):
            self._conclude_with(number, refused("UNKNOWN_SANDBOX", 0.0))
            return
        hint = None if request.mem is None else bytes_from(request.mem)
        if request.mem is not None and hint is None:
            self._conclude_with(number, refused("INVALID_HINT", 0.0))
            return
        with suppress(OSError):
            self._found.dissolve(client.sandbox)
        if group.startswith(f"{home}/{CALL_PREFIX}") and not group.startswith(f"{home}/{CALL_PREFIX}{FOUND}"):
            # A call that waited for another while it holds its lease could wait for ever.
            client.nested = True
            client.send(sockets.state_packet("admitted", "FITS", nested=True))
            return
        kind = pod.kind_of(request.command)
        if hint is None and kind.endswith("/light"):
            if self._moved(client, enforcer.tree.light_group(client.sandbox)):
                client.light = True
                client.send(sockets.state_packet("admitted", "FITS", light=True))
            else:
                self._end(number)
            return
        settings = enforcer.settings
        claim = claim_bytes(hint, kind, sandbox, enforcer.state.learned, settings.learned_fraction)
        wait_s = sockets.bounded_wait_s(request.wait_s, settings.longest_wait_s)
        client.call = self._new_name()
        self._calls[client.call] = number
        enforcer.ask(
            CallDemand(client.call, client.sandbox, self._clock(), claim, kind, declared=hint == claim, wait_s=wait_s)
        )

    def _resume(self, number: int, client: ClientConnection, pidfd: int) -> None:
        """A client of an earlier process takes up its call: the one in whose leaf the process is that it shows."""
        home = self._enforcer.tree.home(client.sandbox)
        group = visible_group_in(sockets.proc_text(sockets.pid_of(pidfd), "cgroup")) or ""
        asker = sockets.group_of(client.peer)
        leaves = f"{home}/{CALL_PREFIX}"
        call = group.removeprefix(leaves)
        is_own = asker is not None and is_below(asker, home) and group.startswith(leaves)
        if not is_own or call not in self._enforcer.state.calls or call in self._calls:
            self._conclude_with(number, refused("UNKNOWN_SANDBOX", 0.0))
            return
        client.call = call
        self._calls[call] = number
        client.send(sockets.state_packet("admitted", "FITS", resumed=True))

    def _moved(self, client: ClientConnection, group: str) -> bool:
        """Whether the client's own process is in the leaf now.

        Its pid could have become another's between the look and the move. A pidfd that lives after the move proves that
        it did not; otherwise what was moved goes back to where its parent is.
        """
        tree, pid = self._enforcer.tree, client.peer.pid
        if not client.peer.is_alive():
            return False
        with suppress(OSError):
            tree.attach(group, pid)
        with suppress(OSError):
            is_in = pid in tree.pids(group)
            if not is_in or client.peer.is_alive():
                return is_in
            text = sockets.proc_text(sockets.parent_of(pid), "cgroup")
            home = next((line[3:].strip("/") for line in text.splitlines() if line.startswith("0::")), "")
            log.warning("a process that took over a pid is moved back", pid=pid, group=home)
            tree.attach(home, pid)
        return False

    def _notify(self, notices: list[act.Action]) -> None:
        """Passes on what the arbiter decided, and the ends of calls, to the clients of these."""
        for action in notices:
            self._pass_on(action)
        for end in self._enforcer.take_ends():
            if (number := self._calls.get(end.call)) is not None:
                self._connections[number].end = end
                self._conclude(number, self._connections[number])
            elif end.events.oom_kill:
                self._count_for(end.sandbox, "ToolCallKilled", "OUTGREW_CLAIM")

    def _pass_on(self, action: act.Action) -> None:
        match action:
            case act.Admit(call, sandbox, lease_bytes):
                if (number := self._calls.get(call)) is None:  # it was found, or its client hung up in this very turn
                    self._enforcer.end_if_empty(sandbox, call)
                    return
                client = self._connections[number]
                if self._moved(client, self._enforcer.tree.call_group(client.sandbox, call)):
                    self._say(call, "admitted", "FITS", lease_bytes=lease_bytes)
                else:
                    self._end(number)
            case act.Refuse(call, retry_after_s, reason):
                self._count(call, "Refused", reason)
                if (number := self._calls.get(call)) is not None:
                    self._conclude_with(number, refused(reason, retry_after_s))
            case act.Queue(call, retry_after_s, reason):
                self._say(call, "queued", reason, retry_after_s=retry_after_s)
            case act.Freeze(call, reason):
                self._count(call, "Frozen", reason)
                self._say(call, "frozen", reason, longest_s=self._enforcer.settings.frozen_s)
            case act.Thaw(call, reason):
                self._say(call, "thawed", reason)
            case act.Kill(call, reason):
                self._count(call, "ToolCallKilled", reason)
                if (number := self._calls.get(call)) is not None:
                    self._connections[number].killed_for = reason
                self._say(call, "killed", reason, advice=ADVICE.get(reason, ""))
            case act.KillAgent(sandbox, reason):
                self._count_for(sandbox, "AgentKilled", reason)
            case act.SetLease() | act.SetAgentLease():
                pass

    def _conclude(self, number: int, client: ClientConnection) -> None:
        """The verdict, when the exit code is known: what the kernel counted of the leaf, gone or still there."""
        code = client.exit_code
        if code is None:
            return
        if client.concluded:  # what it left behind is gone too
            self._end(number)
            return
        if client.call is None:
            outcome: Literal["signalled", "exited"] = "signalled" if code < 0 else "exited"
            self._conclude_with(number, CallVerdict(outcome, 128 - code if code < 0 else code, None, 0, None, None, ""))
            return
        end = client.end or self._enforcer.facts_of(client.call)
        if end is None:
            self._end(number)
            return
        verdict = ended(code, end.events, client.killed_for, end.peak_bytes, end.limit_bytes)
        if verdict.outcome == "out_of_memory":
            self._count_for(client.sandbox, "ToolCallKilled", "OUTGREW_CLAIM")
        if client.end is None and (left := self._processes_of(client)):
            client.concluded = True
            client.send(sockets.verdict_packet(verdict, left))
            return
        self._conclude_with(number, verdict)

    def _count(self, call: str, happening: str, reason: Reason) -> None:
        running = self._enforcer.state.calls.get(call)
        number = self._calls.get(call)
        if running is not None:
            self._count_for(running.request.sandbox, happening, reason)
        elif number is not None:
            self._count_for(self._connections[number].sandbox, happening, reason)

    def _count_for(self, sandbox: str, happening: str, reason: Reason) -> None:
        if (pod := self.pods.get(sandbox)) is not None:
            pod.counts[happening, reason] = pod.counts.get((happening, reason), 0) + 1

    def _say(self, call: str, state: str, reason: Reason, **figures: float | str) -> None:
        if (number := self._calls.get(call)) is not None:
            self._connections[number].send(sockets.state_packet(state, reason, **figures))

    def _conclude_with(self, number: int, verdict: CallVerdict) -> None:
        self._connections[number].send(sockets.verdict_packet(verdict))
        self._end(number)

    def _end(self, number: int) -> None:
        """Ends a connection. A queued call goes with it; a running one stays until its last process ends."""
        client = self._connections.pop(number)
        self._enforcer.unwatch(number)
        if (pod := self.pods.get(client.sandbox)) is not None:
            pod.connections.discard(number)
        _shut(client.opened, client.closer)
        if client.call is not None:
            self._calls.pop(client.call, None)
            self._enforcer.withdraw(client.call)
            self._enforcer.end_if_empty(client.sandbox, client.call)
        client.peer.close()

    def _processes_of(self, client: ClientConnection) -> int:
        """Processes in the client's own call."""
        tree = self._enforcer.tree
        with suppress(OSError):
            return len(tree.pids(tree.call_group(client.sandbox, client.call or "")))
        return 0


def _shut(opened: socket.socket, closer: Closer) -> None:
    """The other end learns of it now; closing it also closes what lies unread in its queue."""
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
    closer.close(opened.close)
