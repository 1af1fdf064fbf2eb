"""Loops of the agent: no error ends one; each is counted, told once while it lasts, and the loop goes on."""

import asyncio
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from nodeagent.bmc import MeterReading, NodeMeter
from nodeagent.health.feed import HealthFeed
from nodeagent.loops import FAILED, Turns, kept_up
from nodeagent.out_of_band import OutOfBand
from nodeagent.settings import RedfishSettings
from power.devices.backend import DeviceReading
from tests.clock import HandClock
from tests.until import comes_true


class OddError(Exception):
    """What nobody had thought of."""


@pytest.fixture(autouse=True)
def _counted_anew() -> Iterator[None]:
    FAILED.clear()
    yield
    FAILED.clear()


def test_a_failure_is_told_when_it_begins_and_when_it_ends_and_counted_each_time() -> None:
    turns = Turns("meter")

    with capture_logs() as told:
        for fails in (False, True, True, True, False, False, True):
            with turns.turn():
                if fails:
                    raise OddError

    assert FAILED["meter"] == 4
    assert [each["log_level"] for each in told] == ["error", "info", "error"]


def test_what_runs_for_ever_runs_again_after_any_error() -> None:
    ran = 0

    async def run() -> None:
        nonlocal ran
        ran += 1
        if ran == 3:
            raise asyncio.CancelledError
        raise OddError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(kept_up("link", run, pause_s=0.0))

    assert (ran, FAILED["link"]) == (3, 2)


class Scripted:
    """A back end whose calls raise first, and work then."""

    def __init__(self, fails: int) -> None:
        self.left, self.calls = fails, 0
        self.worked = threading.Event()

    def _call(self) -> None:
        self.calls += 1
        self.left -= 1
        if self.left >= 0:
            raise OddError("null for an optional property")
        self.worked.set()

    def discover(self) -> tuple[Any, ...]:
        return ()

    def read(self) -> dict[str, DeviceReading]:
        self._call()
        return {"u": DeviceReading("u", 0.0, 100.0, 700.0, requested_w=700.0)}

    def set_limit(self, uuid: str, limit_w: float) -> float:
        self._call()
        return limit_w

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        """Accepts anything."""

    def close(self) -> None:
        """Has nothing open."""


def test_the_reader_of_the_meter_outlives_an_answer_that_breaks_its_decoder() -> None:
    answers = Scripted(fails=2)

    def read_w() -> float:
        answers._call()
        return 464.0

    class AtOnce(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return super().wait(0.001)

    meter = NodeMeter(read_w, HandClock(), Random(1), look_s=0.0)  # noqa: S311
    meter.loop._stop = AtOnce()
    with capture_logs():
        meter.loop.start()
        assert comes_true(lambda: isinstance(meter.reading, MeterReading), within_s=10)
    meter.loop.close()

    assert FAILED["meter"] == 2


def test_the_reader_of_a_bmc_outlives_any_error_of_its_back_end() -> None:
    behind = Scripted(fails=3)
    devices = OutOfBand(behind, HandClock(), Random(1), RedfishSettings(host="bmc", look_s=0.001))  # noqa: S311
    with capture_logs():
        devices.start()
        assert behind.worked.wait(10)
    devices.close()

    assert FAILED["readings of the BMC"] == 3


def test_an_odd_answer_to_a_limit_is_the_devices_error_and_the_limit_may_be_in_force() -> None:
    behind = Scripted(fails=0)
    clock = HandClock()
    devices = OutOfBand(behind, clock, Random(1), RedfishSettings(host="bmc"))  # noqa: S311
    devices.poll()
    devices.set_limit("u", 500.0)
    behind.left = 1

    devices.send_due()

    held = devices.read()["u"]
    assert isinstance(held, DeviceReading)
    assert held.limit_w == 700.0
    with pytest.raises(Exception, match="Broken: OddError"):
        devices.set_limit("u", 500.0)


def test_the_health_feed_goes_on_with_a_source_that_raises() -> None:
    class Sockets:
        pods: tuple[str, ...] = ()
        dropped: dict[str, int] = {}  # noqa: RUF012

        def look(self) -> None:
            """Sees nothing."""

        def read(self, _: float) -> None:
            """Hears nothing."""

        def close(self) -> None:
            """Has nothing open."""

    class Source:
        def read(self, now_s: float) -> tuple[()]:
            raise OddError

    clock = HandClock()
    feed = HealthFeed("n", "life", lambda _: Sockets(), Source(), (), clock)  # type: ignore[arg-type,return-value]
    with capture_logs():
        feed.start()
        assert comes_true(lambda: FAILED["health"] == 1, within_s=10)
    feed.close()
