"""Client of isolation, for agents and their tools: runs a command as a tool call with memory of its own.

    from tonnage import sandbox

    with sandbox.tool(mem="2Gi", wait_s=30) as tool:
        done = tool.run(["pytest", "-q"], capture_output=True, text=True)
    if done.verdict.outcome == "killed":
        ...  # done.verdict.reason, .peak_bytes, .advice, .retry_after_s

Where no node agent answers, commands run plainly, and the verdict says so. Imports the standard library only.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

SOCKET = "/run/tonnage/agent.sock"
"""Where a pod has its socket, if `TONNAGE_SANDBOX_SOCKET` names no other."""
SOCKET_VARIABLE, MEM_VARIABLE = "TONNAGE_SANDBOX_SOCKET", "TONNAGE_MEM_HINT"
MCP_MEM, MCP_VERDICT = "tonnage.dev/mem", "tonnage.dev/verdict"
"""Keys in the `_meta` of a request and of a result of the Model Context Protocol."""

REFUSED = 75
"""Exit status of `tonnage run` for a call that was not admitted: EX_TEMPFAIL of sysexits.h."""
GRACE_S = 10.0
"""Time beyond the call's own wait after which an agent that does not answer is taken for gone."""
VERDICT_S = 2.0
"""Time in which the agent answers for a call that ended; without its answer, the exit code is all that is known."""
RECONNECT_S = 0.5
"""Pause between attempts to reach an agent that went away while a call runs."""
State = Mapping[str, Any]
"""What happens to a call: `state` (queued, frozen, thawed, killed; resumed: the node agent was started
again and took it up), `reason`, and figures."""
_GATE = Path(__file__).with_name("gate.py")


@dataclass(frozen=True)
class Verdict:
    """What became of a tool call."""

    outcome: str
    """exited, signalled, refused, killed (by the node agent) or out_of_memory (by the kernel)."""
    exit_code: int | None = None
    """The command's own, 128 + number for a signal; None: it never started."""
    reason: str | None = None
    """Reason code where it was refused, killed or out of memory."""
    peak_bytes: int = 0
    limit_bytes: int | None = None
    retry_after_s: float | None = None
    advice: str = ""
    isolated: bool = True
    """False: it ran without limits of its own, since no node agent answered."""
    note: str = ""
    """Why it was not isolated."""

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def words(self) -> str:
        """The verdict as a sentence for people; empty where there is nothing to say."""
        if self.outcome not in ("refused", "killed", "out_of_memory"):
            return self.note
        what = {"refused": "not started", "killed": "killed", "out_of_memory": "out of memory"}[self.outcome]
        figures = [f"peak {self.peak_bytes >> 20} MiB"] if self.peak_bytes else []
        if self.limit_bytes:
            figures.append(f"limit {self.limit_bytes >> 20} MiB")
        if self.retry_after_s:
            figures.append(f"try again in {self.retry_after_s:.0f} s")
        return f"{what} ({self.reason}): {', '.join([*figures, *filter(None, [self.advice])])}"


@dataclass(frozen=True)
class Completed:
    """Result of a command: as subprocess.run has it, with the verdict."""

    args: Sequence[str]
    returncode: int
    """As subprocess has it: negative for a signal; `REFUSED` where it never started."""
    stdout: Any
    stderr: Any
    verdict: Verdict
    states: tuple[Mapping[str, Any], ...] = ()
    """What happened to it meanwhile, in order: queued, frozen, thawed, resumed."""


class ToolError(Exception):
    """A tool call was refused, killed, or ran out of memory; its verdict says what helps."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.words())
        self.verdict = verdict


@dataclass
class Tool:
    """Calls with one declared need."""

    mem: str | int | None = None
    wait_s: float | None = None
    on_state: Callable[[State], None] = field(default=lambda _: None)
    """Called from another thread with each state of a running call."""
    require: bool = False
    """Refuses to run anything where no node agent answers."""
    _running: list["Call"] = field(default_factory=list)

    def run(
        self, command: Sequence[str], *, check: bool = False, timeout: float | None = None, **popen: Any
    ) -> Completed:
        """Runs a command to its end as a tool call. Takes `capture_output`, `input` and subprocess.Popen's arguments.

        Raises ToolError where `check` is set and the call did not run to its own end; subprocess.TimeoutExpired after
        `timeout` seconds, with everything that the call started killed.
        """
        text = popen.pop("input", None)
        if popen.pop("capture_output", False):
            popen |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if text is not None:
            popen["stdin"] = subprocess.PIPE
        call = Call(command, self, popen)
        self._running.append(call)
        try:
            out, err = call.process.communicate(text, timeout=timeout)
        except BaseException:
            call.end()
            raise
        done = Completed(command, call.process.returncode, out, err, call.verdict(), tuple(call.states))
        if check and done.verdict.outcome in ("refused", "killed", "out_of_memory"):
            raise ToolError(done.verdict)
        return done

    def start(self, command: Sequence[str], **popen: Any) -> "Call":
        """Starts a command; its `process` is a subprocess.Popen, its `verdict()` is for after its end."""
        call = Call(command, self, popen)
        self._running.append(call)
        return call


@contextlib.contextmanager
def tool(
    mem: str | int | None = None,
    wait_s: float | None = None,
    on_state: Callable[[State], None] = lambda _: None,
    *,
    require: bool = False,
) -> Iterator[Tool]:
    """Tool calls that hold at most `mem` (`2Gi`, or bytes) and wait at most `wait_s` for it.

    What they left running in the background ends with the block. mem: None takes `TONNAGE_MEM_HINT`, or what calls of
    this kind needed before.
    """
    made = Tool(mem if mem is not None else os.environ.get(MEM_VARIABLE) or None, wait_s, on_state, require)
    try:
        yield made
    finally:
        for call in made._running:
            call.end()


def mem_from_mcp(request: Mapping[str, Any]) -> str | int | None:
    """Declared memory in the parameters of an MCP `tools/call` request (`_meta`); None where there is none."""
    meta = request.get("_meta")
    found = meta.get(MCP_MEM) if isinstance(meta, Mapping) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def mcp_meta(verdict: Verdict) -> dict[str, Any]:
    """`_meta` of an MCP result: the verdict as data, for the agent that reads it."""
    return {MCP_VERDICT: asdict(verdict)}


class Call:
    """One command behind its gate, and the line to the node agent."""

    def __init__(self, command: Sequence[str], about: Tool, popen: dict[str, Any]) -> None:
        self.states: list[Mapping[str, Any]] = []
        self._about = about
        self._verdict: Verdict | None = None
        self._note = ""
        self._done = threading.Event()
        self._code: int | None = None
        self._turn = threading.Lock()
        """Held while the line is replaced, or the exit code told on it."""
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours, theirs = socket.socketpair()
        passed = (self._line.fileno(), theirs.fileno())
        words = [str(number) for number in passed]
        gate = [sys.executable, "-I", "-S", str(_GATE), *words, socket_path(), self._ask(command), *command]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the caller's own command
                gate, pass_fds=(*passed, *popen.pop("pass_fds", ())), **popen
            )
        except BaseException:
            for each in (self._line, ours):
                each.close()
            raise
        finally:
            theirs.close()
        self._let_through(ours)

    def _ask(self, command: Sequence[str]) -> str:
        # A file's name may be no text, which must not cost the call its admission.
        words = [os.fsencode(word).decode(errors="replace")[:200] for word in command[:12]]
        ask = {"type": "ask", "command": words, "mem": self._about.mem, "wait_s": self._about.wait_s}
        text = json.dumps(ask)
        return text if len(text.encode()) < 4000 else json.dumps(ask | {"command": words[:1]})

    def _let_through(self, handle: socket.socket) -> None:
        """Waits for the agent's word on the call; without an agent, the command runs plainly."""
        with handle:
            if handle.recv(1) != b"c":
                self._plain(f"no node agent at {socket_path()}: it runs without limits of its own")
            else:
                self._line.settimeout(GRACE_S + (300.0 if self._about.wait_s is None else self._about.wait_s))
                self._wait_for_admission()
            if self._verdict is not None:
                return  # refused: the gate ends without running anything
            handle.send(b"g")
        if not self._note:
            self._line.settimeout(None)
            threading.Thread(target=self._listen, args=(_pidfd_of(self.process),), daemon=True).start()

    def _wait_for_admission(self) -> None:
        while True:
            state = self._received()
            if state is None:
                self._plain("the node agent went away: it runs without limits of its own")
                return
            if state["state"] in ("admitted", "ended"):
                return

    def _plain(self, note: str) -> None:
        if self._about.require:
            note = note.replace("it runs without limits of its own", "it is not run")
            self._verdict = Verdict("refused", reason="NO_AGENT", advice=note, isolated=False)
        self._note = note
        self._done.set()

    def _listen(self, pidfd: int) -> None:
        """Hears the agent until its last word; one that went away is looked for as long as somebody wants to know."""
        while not self._done.is_set():
            if self._received() is None and not self._taken_up(pidfd):
                break
        self._done.set()
        if pidfd >= 0:
            os.close(pidfd)

    def _taken_up(self, pidfd: int) -> bool:
        """Whether an agent that was started again has taken up the call: the pidfd shows it which one."""
        while pidfd >= 0 and not self._done.wait(RECONNECT_S):
            line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            answer = _asked_again(line, pidfd)
            if answer.get("state") == "admitted":
                with self._turn:
                    self._line.close()
                    self._line = line
                    if self._done.is_set():
                        line.close()
                    elif self._code is not None:
                        self._tell_code()
                self._happened({"state": "resumed"})
                return True
            line.close()
            if answer:
                return False  # it knows nothing of this call
        return False

    def _tell_code(self) -> None:
        with contextlib.suppress(OSError):
            self._line.send(json.dumps({"type": "exited", "code": self._code}).encode())

    def _received(self) -> Mapping[str, Any] | None:
        """The next state; None where the line ended."""
        try:
            packet = self._line.recv(8192)
        except OSError:
            return None
        if not packet:
            return None
        state: dict[str, Any] = json.loads(packet)
        if state["state"] == "ended":
            known = {each.name for each in fields(Verdict)}
            self._verdict = Verdict(**{name: value for name, value in state["verdict"].items() if name in known})
            self._done.set()
        elif state["state"] != "admitted":
            self._happened(state)
        return state

    def _happened(self, state: State) -> None:
        self.states.append(state)
        self._about.on_state(state)

    def verdict(self) -> Verdict:
        """The verdict, after the process ended."""
        code = self.process.wait()
        if self._verdict is None and not self._note:
            with self._turn:
                self._code = code
                self._tell_code()
            self._done.wait(VERDICT_S)
        if self._verdict is None:
            outcome = "signalled" if code < 0 else "exited"
            note = self._note or "the node agent went away: nothing is known of its memory"
            return Verdict(outcome, 128 - code if code < 0 else code, isolated=not self._note, note=note)
        return self._verdict

    def end(self) -> None:
        """Kills what the call started and is still there, also what went into the background."""
        # Also where its main process ended: nobody may have asked yet what it left.
        with contextlib.suppress(OSError):
            self._line.send(b'{"type":"end"}')
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.leave()

    def leave(self) -> None:
        """Lets go of the call: what went into the background stays, within its limits."""
        with self._turn:
            self._done.set()
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)
            self._line.close()


def _pidfd_of(process: subprocess.Popen[Any]) -> int:
    """Descriptor of a child that was not waited for yet; -1 where the system has none."""
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(process.pid)
    return -1


def _asked_again(line: socket.socket, pidfd: int) -> Mapping[str, Any]:
    """Answer of the agent to a client that shows it the process of its call; empty where nobody answers."""
    line.settimeout(GRACE_S)
    try:
        line.connect(socket_path())
        socket.send_fds(line, [b'{"type":"resume"}'], [pidfd])
        packet = line.recv(8192)
    except OSError:
        return {}
    line.settimeout(None)
    answer: dict[str, Any] = json.loads(packet) if packet else {}
    return answer


def socket_path() -> str:
    """Path of the node agent's socket."""
    return os.environ.get(SOCKET_VARIABLE) or SOCKET
