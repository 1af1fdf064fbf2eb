"""Device process: a driver that hangs never blocks the agent; every call ends in time, and later ones work."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, Pipe

import pytest

from nodeagent.device_process import REST_S, DeviceProcess, serve
from power.devices.backend import BROKEN, LOST, REFUSED, SILENT, DeviceError, DeviceFacts, DeviceReading
from tests.clock import HandClock
from tests.unit.nodeagent.fake_device_process import AGE_S, FaultyDevices


@contextmanager
def node(how: str = "", clock: HandClock | None = None) -> Iterator[DeviceProcess]:
    process = DeviceProcess(partial(FaultyDevices, how), clock or HandClock(50.0), call_s=0.3)
    try:
        yield process
    finally:
        process.close()


def code_of(process: DeviceProcess, limit_w: float, uuid: str = "g") -> str:
    with pytest.raises(DeviceError) as error:
        process.set_limit(uuid, limit_w)
    return error.value.code


def test_calls_and_errors_cross_the_border_whole() -> None:
    with node() as process:
        facts = process.discover()
        enforced_w = process.set_limit("g", 350.0)
        found = process.read()
        refusal = code_of(process, 50.0)

    assert [each.uuid for each in facts] == ["g", "lost"]
    assert enforced_w == 350.0
    reading, lost = found["g"], found["lost"]
    assert isinstance(reading, DeviceReading)
    assert reading.limit_w == 350.0
    assert reading.at_s == pytest.approx(50.0 - AGE_S, abs=0.2)  # heard at 50 s, 3 s old
    assert isinstance(lost, DeviceError)
    assert lost.code == LOST
    assert refusal == REFUSED


@pytest.mark.parametrize("how", ["hang", "die"])
def test_a_call_that_hangs_or_kills_ends_in_time_and_the_next_process_works(how: str) -> None:
    clock = HandClock(50.0)
    with node(how, clock) as process:
        process.discover()
        first = code_of(process, 666.0)
        rested = code_of(process, 300.0)  # left alone for a while: a hanging driver is not hammered
        clock.now_s += REST_S
        after = process.set_limit("g", 300.0)

    assert (first, rested, after) == (SILENT, SILENT, 300.0)


def test_whatever_a_library_raises_is_an_answer() -> None:
    with node("raise") as process:
        code = code_of(process, 666.0)
        after = process.set_limit("g", 300.0)

    assert (code, after) == (BROKEN, 300.0)


def test_a_process_whose_readings_keep_failing_is_replaced_ever_more_rarely() -> None:
    """A library knows only the devices and the driver of its start: after a reset both are new."""
    clock = HandClock(0.0)
    process = DeviceProcess(FaultyDevices, clock, renews=True)
    try:
        replaced = []
        for now_s in range(0, 400, 20):
            clock.now_s = float(now_s)
            process.read()  # one of its devices is lost
            if process._process is None:
                replaced.append(now_s)
    finally:
        process.close()

    # After a minute, then after two more; counted from the first failure of each new process.
    assert replaced == [60, 200]


@dataclass
class KilledDuringTheCall:
    """Back end of one device, whose caller is killed while it sets the first limit."""

    line: Connection
    how: str = ""
    limits_w: list[float] = field(default_factory=list)

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        if self.how == "unread":
            raise RuntimeError("the vendor's library is unwell")
        return {"g": DeviceReading("g", 0.0, None, self.limits_w[-1])}

    def set_limit(self, uuid: str, limit_w: float) -> float:
        if uuid == "sick":
            raise RuntimeError("the vendor's library is unwell")
        self.limits_w.append(limit_w)
        self.line.close()
        return limit_w

    def discover(self) -> tuple[DeviceFacts, ...]:
        return ()

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("how", ["read", "unread"])
def test_a_caller_that_is_killed_during_a_call_leaves_the_devices_at_their_leases(how: str) -> None:
    """S1: the answer could not be sent, and the process ended with the device at the highest limit of a burst."""
    line, theirs = Pipe()
    made = KilledDuringTheCall(line, how)
    line.send(("set_limit", ("g", 700.0), {"sick": 350.0, "g": 350.0}))

    serve(theirs, lambda: made, clock=lambda: 0.0)

    assert made.limits_w == [700.0, 350.0]
