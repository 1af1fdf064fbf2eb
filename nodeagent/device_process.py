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

from nodeagent.local_backends import BackendArguments, local_backend
from power.devices.backend import BROKEN, SILENT, Backend, DeviceError, DeviceFacts, DeviceReading
from power.rules import ROUNDING_W

CALL_S = 2.0
"""Time limit of one call. Chosen: NVML answers in milliseconds; 8 devices that each take 100 ms still fit."""
START_S = 15.0
"""Time limit of the first answer of a new process: the driver may have to wake the devices."""
RENEW_S, LONGEST_RENEW_S = 60.0, 3600.0
"""Time for which readings fail before a process is replaced, at first and at most: a device that is gone for good
must not cost a start of the library every minute."""
BMC_START_S = 90.0
"""Time limit for searching a BMC: three requests of 0.3 s for each of 16 processors, at five times the usual
duration."""
REST_S = 5.0
"""Pause after a process had to be killed, before the next is started, so that a hung driver is not called
continuously."""


class DeviceCall(msgspec.Struct):
    name: str
    uuid: str = ""
    value: float | None = None
    leave_w: dict[str, float] | None = None
    """Limits to which the devices are lowered if the caller is killed; None: those of an earlier call still apply."""


class DeviceFailure(msgspec.Struct):
    code: str
    words: str


class DeviceAnswer(msgspec.Struct, omit_defaults=True):
    """Result of a call; empty for a setter without a value."""

    at_s: float = 0.0
    """Instant of the answer by the child's clock, from which the ages of readings are computed."""
    failed: DeviceFailure | None = None
    facts: list[DeviceFacts] | None = None
    readings: dict[str, DeviceReading] | None = None
    errors: dict[str, DeviceFailure] | None = None
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
            call = msgspec.json.decode(line, type=DeviceCall)
            leave_w = leave_w if call.leave_w is None else call.leave_w
            if made is None:
                made = backend()
            match call.name:
                case "discover":
                    answer = DeviceAnswer(facts=list(made.discover()))
                case "read":
                    found = made.read()
                    answer = DeviceAnswer(
                        readings={uuid: each for uuid, each in found.items() if isinstance(each, DeviceReading)},
                        errors={
                            u: DeviceFailure(e.code, e.words) for u, e in found.items() if isinstance(e, DeviceError)
                        },
                    )
                case "set_limit" if call.value is not None:
                    answer = DeviceAnswer(value=made.set_limit(call.uuid, call.value))
                case "set_clocks":
                    made.set_clocks(call.uuid, call.value)
                    answer = DeviceAnswer()
                case _:
                    raise DeviceError(BROKEN, f"unknown call {call.name!r}")
        except DeviceError as error:
            answer = DeviceAnswer(failed=DeviceFailure(error.code, error.words))
        except Exception as error:  # noqa: BLE001 - no error of a vendor's library may end the process
            answer = DeviceAnswer(failed=DeviceFailure(BROKEN, f"{type(error).__name__}: {error}"))
        answer.at_s = clock()
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()
    if made is None:
        return
    try:
        left = made.read()
    except DeviceError:
        left = {}
    for uuid, limit_w in leave_w.items():
        seen = left.get(uuid)
        if isinstance(seen, DeviceReading) and seen.limit_w is not None and seen.limit_w <= limit_w + ROUNDING_W:
            continue
        with suppress(DeviceError):  # no failure keeps the others from being lowered
            made.set_limit(uuid, limit_w)
    made.close()


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
        """What the child last received of `_leave_w`."""

    def leave_at(self, limit_w: Mapping[str, float]) -> None:
        """Sets the limits, in watts by UUID, to which the child lowers the devices if this process is killed. They
        travel with the next call.
        """
        self._leave_w = limit_w

    def discover(self) -> tuple[DeviceFacts, ...]:
        return tuple(self._ask(DeviceCall("discover")).facts or ())

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        """Readings with instants by this process's clock; their ages when the child answered are preserved."""
        try:
            answer = self._ask(DeviceCall("read"))
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
        answer = self._ask(DeviceCall("set_limit", uuid, limit_w))
        if answer.value is None:
            raise DeviceError(BROKEN, "the back end returned no limit")
        return answer.value

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        self._ask(DeviceCall("set_clocks", uuid, max_mhz))

    def close(self) -> None:
        """Kills the process, if it runs."""
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

    def _ask(self, call: DeviceCall) -> DeviceAnswer:
        if self._process is None:
            if self._clock() < self._not_before_s:
                raise DeviceError(SILENT, "its process hung a moment ago and is restarted after a pause")
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe)  # noqa: S603 - our own
            self._lines, self._is_fresh, self._left_w = SimpleQueue(), True, {}
            threading.Thread(target=_read_lines, args=(self._process.stdout, self._lines), daemon=True).start()
        process = self._process
        assert process.stdin is not None  # noqa: S101 - made with a pipe
        leave_w = self._leave_w
        if leave_w != self._left_w:
            call.leave_w = dict(leave_w)
        words = "its process ended"
        try:
            process.stdin.write(msgspec.json.encode(call) + b"\n")
            process.stdin.flush()
            line = self._lines.get(timeout=self._start_s if self._is_fresh else self._call_s)
        except BrokenPipeError:
            line = b""
        except Empty:
            line, words = b"", "no answer within the time limit"
        if not line:
            self.close()
            self._not_before_s = self._clock() + REST_S
            raise DeviceError(SILENT, f"{call.name} {call.uuid}: {words}".replace(" :", ":"))
        self._is_fresh, self._left_w = False, leave_w
        answer = msgspec.json.decode(line, type=DeviceAnswer)
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
            self.close()
            self._failing_since_s, self._renew_s = float("inf"), min(2 * self._renew_s, LONGEST_RENEW_S)


def _read_lines(stream: IO[bytes], lines: "SimpleQueue[bytes]") -> None:
    try:
        with stream:
            for line in stream:
                lines.put(line)
    finally:
        lines.put(b"")  # whatever ended it: the caller waits


def guarded_backend(name: str, clock: Callable[[], float], arguments: BackendArguments = None) -> DeviceProcess:
    """Back end in a separate process, so that no call takes longer than its time limit. clock: the one for its
    readings.
    """
    encoded = () if arguments is None else (msgspec.json.encode(arguments, enc_hook=str).decode(),)
    start_s = BMC_START_S if name == "redfish" else START_S
    command = (sys.executable, "-m", "nodeagent.device_process", name, *encoded)
    return DeviceProcess(command, clock, CALL_S, start_s, renews=name in ("nvml", "amdsmi"))


def main(argv: Sequence[str]) -> None:
    """`python -m nodeagent.device_process BACKEND [ABOUT]`: entry point of the child process."""
    serve(lambda: local_backend(argv[1], "".join(argv[2:])), sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main(sys.argv)
