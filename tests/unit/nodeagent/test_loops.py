"""Loops of the agent: no error ends one; each is counted, told once while it lasts, and the loop goes on."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from nodeagent import loops
from nodeagent.health.dcgm_exporter import DcgmExporter
from nodeagent.health.feed import HealthFeed
from nodeagent.health.probe_listener import ProbeListener
from nodeagent.health.prober import Prober
from nodeagent.health.ras_service import RasService
from nodeagent.loops import FAILED, Turns, kept_up
from nodeagent.out_of_band import MeterReading, NodeMeter, OutOfBand
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


def odd(*_: object) -> Any:
    raise OddError


def broken_listener() -> ProbeListener:
    made = ProbeListener("127.0.0.1", 0)
    made._opened.close()
    made._opened = type("Broken", (), {"accept": odd, "close": lambda _: None})()
    return made


def misled_prober() -> Prober:
    made = Prober("n", "life", broken_listener(), HandClock(), lambda _: None)
    made.listener._loop._begin_s = 1e6
    made._orders.put("no order")  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    "begun",
    [
        lambda: DcgmExporter(odd, lambda _: True, HandClock()),
        lambda: RasService(odd, lambda _: True, HandClock()),
        broken_listener,
        misled_prober,
    ],
)
def test_no_reader_of_health_ends_by_an_error_that_nobody_thought_of(begun: Callable[[], Any]) -> None:
    """Everything of health that has a thread of its own beside the feed, each with what breaks its first turn."""
    reader = begun()
    name, reader._loop._begin_s = reader._loop._turns.loop, 0.0
    with capture_logs() as told:
        reader.start()
        assert comes_true(lambda: FAILED[name] == 1, within_s=10)
    assert reader._loop._thread.is_alive()
    assert [each["loop"] for each in told if each["log_level"] == "error"] == [name]
    reader.close()


def test_no_thread_of_the_agent_runs_outside_of_its_loops() -> None:
    """A closer counts its turns by itself; one write of the record, and the server of metrics, are no loops of ours."""
    folder = Path(loops.__file__).parent
    begun = {each.name for each in folder.rglob("*.py") if "Thread(" in each.read_text(encoding="utf-8")}
    assert begun == {"loops.py", "socket_protection.py", "state_file.py", "metrics.py"}
