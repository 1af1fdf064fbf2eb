"""A back end in its own process: a driver call that hangs blocks that process, never the agent.

NVML calls on a dying GPU were seen to block for ever. Here every call has a time limit. When it passes, the process is
killed and the next call starts a new one. Calls and answers are objects, pickled, on a line that only these two
processes hold. When the agent is killed it ends, and the process that is left lowers the devices to their leases before
it ends.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from typing import Any

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


def serve(line: Connection, make: Callable[[], Backend], clock: Callable[[], float] = time.monotonic) -> None:
    """Answers calls until the line ends: the loop of the child process. clock: the one that readings carry.

    A caller that ends on purpose kills this process: the end of the line means that the caller was killed.
    """
    made: Backend | None = None
    leave_w: dict[str, float] = {}
    with suppress(EOFError, OSError):  # the line may end while a call is answered: then sending fails
        while True:
            name, arguments, leave_w = line.recv()
            try:
                if made is None:
                    made = make()
                answer = getattr(made, name)(*arguments)
            except DeviceError as error:
                answer = error
            except Exception as error:  # noqa: BLE001 - no error of a vendor's library may end the process
                answer = DeviceError(BROKEN, f"{type(error).__name__}: {error}")
            line.send((clock(), answer))
    if made is None:
        return
    left: Mapping[str, DeviceReading | DeviceError] = {}
    with suppress(Exception):  # what cannot be read is lowered unread
        left = made.read()
    for uuid, limit_w in leave_w.items():
        seen = left.get(uuid)
        if isinstance(seen, DeviceReading) and seen.limit_w is not None and seen.limit_w <= limit_w + ROUNDING_W:
            continue
        with suppress(Exception):  # no failure keeps the others from being lowered
            made.set_limit(uuid, limit_w)
    made.close()


class DeviceProcess:
    """Back end whose calls end within a time limit, in a process of its own."""

    def __init__(
        self,
        backend: Callable[[], Backend],
        clock: Callable[[], float] = time.monotonic,
        call_s: float = CALL_S,
        start_s: float = START_S,
        *,
        renews: bool = False,
    ) -> None:
        """backend: makes the back end in the process, to which it is sent. clock: the one for its readings.

        renews: whether a process whose readings keep failing is replaced: libraries know only the devices and the
        driver of their start. Not for one that remembers orders on their way.
        """
        self._backend, self._clock, self._call_s, self._start_s = backend, clock, call_s, start_s
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None
        self._not_before_s = float("-inf")
        self._is_fresh = True
        self._leave_w: Mapping[str, float] = {}
        self._renews, self._failing_since_s, self._renew_s = renews, float("inf"), RENEW_S

    def leave_at(self, limit_w: Mapping[str, float]) -> None:
        """Sets the limits, in watts by UUID, to which the child lowers the devices if this process is killed. They
        travel with the next call.
        """
        self._leave_w = limit_w

    def discover(self) -> tuple[DeviceFacts, ...]:
        facts: tuple[DeviceFacts, ...] = self._ask("discover")[1]
        return facts

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        """Readings with instants by this process's clock; their ages when the child answered are preserved."""
        try:
            answered_s, found = self._ask("read")
        except DeviceError:
            self._renew(fails=True)
            raise
        self._renew(fails=any(isinstance(each, DeviceError) for each in found.values()))
        now_s = self._clock()
        return {
            uuid: each
            if isinstance(each, DeviceError)
            else replace(each, at_s=now_s - max(0.0, answered_s - each.at_s))
            for uuid, each in found.items()
        }

    def set_limit(self, uuid: str, limit_w: float) -> float:
        return float(self._ask("set_limit", uuid, limit_w)[1])

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        self._ask("set_clocks", uuid, max_mhz)

    def close(self) -> None:
        """Kills the process, if it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        if self._line is not None:
            self._line.close()
        # A process that hangs in the kernel cannot be killed until the driver returns: do not wait long for it.
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)

    def _ask(self, name: str, *arguments: Any) -> tuple[float, Any]:
        """When the child answered by its own clock, and what. Raises DeviceError."""
        words = "its process ended"
        try:
            if self._process is None or self._line is None:
                if self._clock() < self._not_before_s:
                    raise DeviceError(SILENT, "its process hung a moment ago and is restarted after a pause")
                line, theirs = Pipe()
                with theirs:
                    command = (sys.executable, "-m", "nodeagent.device_process", str(theirs.fileno()))
                    nothing = subprocess.DEVNULL  # a vendor's library may print
                    self._process = subprocess.Popen(  # noqa: S603 - our own
                        command, pass_fds=(theirs.fileno(),), stdin=nothing, stdout=nothing
                    )
                self._is_fresh = True
                line.send(self._backend)
                self._line = line
            self._line.send((name, arguments, dict(self._leave_w)))
            if self._line.poll(self._start_s if self._is_fresh else self._call_s):
                answered_s, answer = self._line.recv()
                self._is_fresh = False
                if isinstance(answer, DeviceError):
                    raise answer
                return answered_s, answer
            words = "no answer within the time limit"
        except (EOFError, OSError):
            pass
        self.close()
        self._not_before_s = self._clock() + REST_S
        raise DeviceError(SILENT, f"{' '.join(map(str, (name, *arguments[:1])))}: {words}")

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


if __name__ == "__main__":
    its_line = Connection(int(sys.argv[1]))
    serve(its_line, its_line.recv())
