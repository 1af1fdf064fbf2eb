"""Meter of the node: a thread asks the BMC periodically for the draw of the whole machine, so that no caller waits."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import structlog

from power.devices.backend import DeviceError

log = structlog.get_logger(__name__)
JITTER_SHARE = 0.25
"""Fraction by which intervals are lengthened at most, so that a fleet does not send its requests at the same time."""
REST_S = 60.0
"""Pause after a failed reading: finding the meter takes a BMC as many requests as it has chassis."""


@dataclass(frozen=True, slots=True)
class MeterReading:
    """Draw of the machine."""

    watts: float
    at_s: float
    """Instant by the agent's clock before the BMC was asked: the earliest possible one of the reading."""


class NodeMeter:
    """Periodic reader of the meter. `reading` is the newest one, however old (see its instant); None: none yet."""

    def __init__(self, read_w: Callable[[], float], clock: Callable[[], float], chance: Random, look_s: float) -> None:
        """read_w: reads the meter; raises DeviceError."""
        self._read_w, self._clock, self._chance, self._look_s = read_w, clock, chance, look_s
        self._stop = threading.Event()
        self._trouble = ""
        self.reading: MeterReading | None = None

    def start(self) -> None:
        threading.Thread(target=self._look_on, name="meter", daemon=True).start()

    def close(self) -> None:
        self._stop.set()

    def look(self) -> bool:
        """Reads once and returns whether that succeeded. A failure is logged once."""
        began_s = self._clock()
        try:
            self.reading = MeterReading(self._read_w(), began_s)
        except DeviceError as error:
            if not self._trouble:
                log.warning("the node's meter cannot be read", why=str(error))
            self._trouble = str(error)
            return False
        if self._trouble:
            log.info("the node's meter can be read again")
        self._trouble = ""
        return True

    def _look_on(self) -> None:
        while True:
            rest_s = self._look_s if self.look() else max(self._look_s, REST_S)
            if self._stop.wait(rest_s * (1 + self._chance.uniform(0.0, JITTER_SHARE))):
                return
