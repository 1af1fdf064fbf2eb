"""A back end in its own process: a driver call that hangs blocks that process, never the agent.

NVML calls on a dying GPU were seen to block for ever. Here every call has a time limit. When it passes, the process is
killed and the next call starts a new one. Requests and answers are lines of JSON over the process's own pipes. When the
agent is killed these end, and the process that is left lowers the devices to their leases before it ends.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import IO

import msgspec

from nodeagent.local_backends import BackendArguments
from power.devices.backend import BROKEN, SILENT, Backend, DeviceError, DeviceFacts, DeviceReading
from power.rules import ROUNDING_W

CALL_S = 2.0
"""Time limit of one call. Chosen: NVML answers in milliseconds; 8 devices that each take 100 ms still fit."""
START_S = 15.0
"""Time limit of the first answer of a new process: the driver may have to wake the devices."""
RENEW_S, LONGEST_RENEW_S = 60.0, 3600.0
"""Time for which readings fail before a process is replaced, at first and at most: a device that is gone for good
must not cost a start of the library every minute."""
REST_S = 5.0
"""Pause after a process had to be killed, before the next is started, so that a hung driver is not called
continuously."""


class Call(msgspec.Struct):
    name: str
    uuid: str = ""
    value: float | None = None
    leave_w: dict[str, float] | None = None
    """Limits to which the devices are lowered if the caller is killed; None: those of an earlier call still apply."""


class Failed(msgspec.Struct):
    code: str
    words: str


class Answer(msgspec.Struct, omit_defaults=True):
    """Result of a call; empty for a setter without a value."""

    at_s: float = 0.0
    """Instant of the answer by the child's clock, from which the ages of readings are computed."""
    failed: Failed | None = None
    facts: list[DeviceFacts] | None = None
    readings: dict[str, DeviceReading] | None = None
    errors: dict[str, Failed] | None = None
    value: float | None = None


def serve(
    backend: Callable[[], Backend],
    requests: IO[bytes],
    answers: IO[bytes],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Answers calls until `requests` ends: the loop of the child process. clock: the one that readings carry.

    A caller that ends on purpose kills this process: the end of `requests` means that the caller was killed.
    """
    made: Backend | None = None
    leave_w: dict[str, float] = {}
    for line in requests:
        try:
            call = msgspec.json.decode(line, type=Call)
            leave_w = leave_w if call.leave_w is None else call.leave_w
            if made is None:
                made = backend()
            answer = _answer(made, call)
        except DeviceError as error:
            answer = Answer(failed=Failed(error.code, error.words))
        except Exception as error:  # noqa: BLE001 - no error of a vendor's library may end the process
            answer = Answer(failed=Failed(BROKEN, f"{type(error).__name__}: {error}"))
        answer.at_s = clock()
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()
    if made is not None:
        _lower(made, leave_w)
        made.close()


def _lower(backend: Backend, leave_w: Mapping[str, float]) -> None:
    """Lowers devices that enforce more than this, or do not answer; no failure keeps the others from it."""
    try:
        found = backend.read()
    except DeviceError:
        found = {}
    for uuid, limit_w in leave_w.items():
        seen = found.get(uuid)
        if isinstance(seen, DeviceReading) and seen.limit_w is not None and seen.limit_w <= limit_w + ROUNDING_W:
            continue
        with suppress(DeviceError):
            backend.set_limit(uuid, limit_w)


def _answer(backend: Backend, call: Call) -> Answer:
    match call.name:
        case "discover":
            return Answer(facts=list(backend.discover()))
        case "read":
            found = backend.read()
            return Answer(
                readings={uuid: each for uuid, each in found.items() if isinstance(each, DeviceReading)},
                errors={uuid: Failed(e.code, e.words) for uuid, e in found.items() if isinstance(e, DeviceError)},
            )
        case "set_limit":
            assert call.value is not None  # noqa: S101 - our own caller, below
            return Answer(value=backend.set_limit(call.uuid, call.value))
        case "set_clocks":
            backend.set_clocks(call.uuid, call.value)
            return Answer()
        case _:
            raise DeviceError(BROKEN, f"unknown call {call.name!r}")


class DeviceProcess:
    """Back end whose calls end within a time limit. `command` starts a process that runs `serve` on its standard
    streams.
    """

    def __init__(
        self,
        command: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        call_s: float = CALL_S,
        start_s: float = START_S,
        *,
        renews: bool = False,
    ) -> None:
        """renews: whether a process whose readings keep failing is replaced: libraries know only the devices and the
        driver of their start. Not for one that remembers orders on their way.
        """
        self._command, self._clock, self._call_s, self._start_s = tuple(command), clock, call_s, start_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._not_before_s = float("-inf")
        self._is_fresh = True
        self._leave_w: Mapping[str, float] = {}
        self._renews, self._failing_since_s, self._renew_s = renews, float("inf"), RENEW_S
        self._left_w: Mapping[str, float] = {}
        """What the child was last told of `_leave_w`."""

    def leave_at(self, limit_w: Mapping[str, float]) -> None:
        """Sets the limits, in watts by UUID, to which the child lowers the devices if this process is killed. They
        travel with the next call.
        """
        self._leave_w = limit_w

    def discover(self) -> tuple[DeviceFacts, ...]:
        return tuple(self._ask(Call("discover")).facts or ())

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        """Readings with instants by this process's clock; their ages when the child answered are preserved."""
        try:
            answer = self._ask(Call("read"))
        except DeviceError:
            self._renew(fails=True)
            raise
        self._renew(fails=bool(answer.errors))
        now_s = self._clock()
        found: dict[str, DeviceReading | DeviceError] = {
            uuid: replace(each, at_s=now_s - max(0.0, answer.at_s - each.at_s))
            for uuid, each in (answer.readings or {}).items()
        }
        return found | {uuid: DeviceError(e.code, e.words) for uuid, e in (answer.errors or {}).items()}

    def set_limit(self, uuid: str, limit_w: float) -> float:
        answer = self._ask(Call("set_limit", uuid, limit_w))
        if answer.value is None:
            raise DeviceError(BROKEN, "the back end returned no limit")
        return answer.value

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        self._ask(Call("set_clocks", uuid, max_mhz))

    def close(self) -> None:
        self._end()

    def _ask(self, call: Call) -> Answer:
        process = self._running()
        assert process.stdin is not None  # noqa: S101 - made with a pipe
        leave_w = self._leave_w
        if leave_w != self._left_w:
            call.leave_w = dict(leave_w)
        try:
            process.stdin.write(msgspec.json.encode(call) + b"\n")
            process.stdin.flush()
            line = self._lines.get(timeout=self._start_s if self._is_fresh else self._call_s)
        except (BrokenPipeError, Empty) as error:
            self._end()
            self._not_before_s = self._clock() + REST_S
            words = "its process ended" if isinstance(error, BrokenPipeError) else "no answer within the time limit"
            raise DeviceError(SILENT, f"{call.name} {call.uuid}: {words}".replace(" :", ":")) from error
        if not line:
            self._end()
            self._not_before_s = self._clock() + REST_S
            raise DeviceError(SILENT, f"{call.name}: its process ended")
        self._is_fresh, self._left_w = False, leave_w
        answer = msgspec.json.decode(line, type=Answer)
        if answer.failed:
            raise DeviceError(answer.failed.code, answer.failed.words)
        return answer

    def _renew(self, *, fails: bool) -> None:
        """Replaces a process whose readings failed for a minute, and again after twice as long each time."""
        now_s = self._clock()
        if not fails:
            self._failing_since_s, self._renew_s = float("inf"), RENEW_S
            return
        self._failing_since_s = min(self._failing_since_s, now_s)
        if self._renews and now_s - self._failing_since_s >= self._renew_s:
            self._end()
            self._failing_since_s, self._renew_s = float("inf"), min(2 * self._renew_s, LONGEST_RENEW_S)

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None:
            return self._process
        if self._clock() < self._not_before_s:
            raise DeviceError(SILENT, "its process hung a moment ago and is restarted after a pause")
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own
        lines: SimpleQueue[bytes] = SimpleQueue()
        assert process.stdout is not None  # noqa: S101 - made with a pipe
        threading.Thread(target=_hear, args=(process.stdout, lines), daemon=True).start()
        self._process, self._lines, self._is_fresh, self._left_w = process, lines, True, {}
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with suppress(BrokenPipeError):
            if process.stdin is not None:
                process.stdin.close()
        # A process that hangs in the kernel cannot be killed until the driver returns: do not wait long for it.
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)


def _hear(stream: IO[bytes], lines: "SimpleQueue[bytes]") -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(b"")


def main(argv: Sequence[str]) -> None:
    """`python -m nodeagent.device_process BACKEND [ABOUT]`: entry point of the child process."""
    from nodeagent.local_backends import local_backend

    serve(lambda: local_backend(argv[1], "".join(argv[2:])), sys.stdin.buffer, sys.stdout.buffer)


BMC_START_S = 90.0
"""Time limit for searching a BMC: three requests of 0.3 s for each of 16 processors, at five times the usual
duration."""


def guarded_backend(name: str, clock: Callable[[], float], arguments: BackendArguments = None) -> DeviceProcess:
    """Back end in a separate process, so that no call takes longer than its time limit. clock: the one for its
    readings.
    """
    encoded = () if arguments is None else (msgspec.json.encode(arguments, enc_hook=str).decode(),)
    start_s = BMC_START_S if name == "redfish" else START_S
    command = (sys.executable, "-m", "nodeagent.device_process", name, *encoded)
    return DeviceProcess(command, clock, CALL_S, start_s, renews=name in ("nvml", "amdsmi"))


if __name__ == "__main__":
    main(sys.argv)
