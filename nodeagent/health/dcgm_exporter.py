"""Reader of the node's DCGM exporter: a thread of its own, so that an exporter that hangs delays no other evidence."""

import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import structlog

from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake
from health.records.frames import Evidence
from nodeagent.health.dcgm_evidence import DcgmEvidence
from nodeagent.health.dcgm_text import Sample, samples_in
from nodeagent.health.feed import NICENESS
from nodeagent.health.metrics_page import PageError

log = structlog.get_logger(__name__)
EVERY_S = 15.0
"""Seconds between two readings: the exporter collects every 30 s by default, and often every 10 or 15."""
TELL_S = 3600.0
"""Pause between two log lines about failures: an exporter that fails every other time fills no log."""


class DcgmExporter:
    """Evidence of one exporter (`HostEvidence`). Failures are counted by code, and logged when they begin."""

    def __init__(self, fetch: Callable[[], str], is_own: Callable[[Sample], bool], clock: Clock) -> None:
        """fetch: the exporter's text; raises PageError. is_own: whether a sample is of this node."""
        self._fetch, self._is_own, self._clock = fetch, is_own, clock
        self._evidence = DcgmEvidence()
        self._stop = threading.Event()
        self._told_s = float("-inf")
        self._fails = self._is_told = False
        self.reads = 0
        self.failed: dict[str, int] = {}

    def start(self) -> None:
        threading.Thread(target=self._look_on, name="dcgm", daemon=True).start()

    def close(self) -> None:
        self._stop.set()

    def read(self, now_s: float) -> Sequence[Evidence]:
        """What was found so far; waits for nothing."""
        return self._evidence.read(now_s)

    def look(self) -> None:
        """Reads the exporter once."""
        self.reads += 1
        try:
            self._take(self._fetch())
        except PageError as error:
            if self._is_news(error.code):
                log.warning("the DCGM exporter cannot be read", code=error.code, why=str(error))
            return
        if self._is_told:
            log.info("the DCGM exporter can be read again")
        self._fails = self._is_told = False

    def _take(self, text: str) -> None:
        samples, unread = samples_in(text)
        own = [each for each in samples if self._is_own(each)]
        if own:
            self._evidence.take(own, self._clock())
        if unread:
            raise PageError("Malformed", f"{unread} lines about health cannot be read")
        if not samples:
            raise PageError("Empty", "it tells nothing about the health of any GPU")
        if not own:
            raise PageError("OtherNode", f"it tells of {samples[0].gpu} on {samples[0].host or 'a nameless host'}")

    def _is_news(self, code: str) -> bool:
        """Counts a failure; whether it is to be told."""
        self.failed[code] = self.failed.get(code, 0) + 1
        begins, self._fails = not self._fails, True
        if begins and self._clock() - self._told_s >= TELL_S:
            self._told_s, self._is_told = self._clock(), True
            return True
        return False

    def _look_on(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while not self._stop.is_set():
            try:
                self.look()
            except Exception:
                if self._is_news("Broken"):
                    log.exception("a reading of the DCGM exporter failed")
            self._stop.wait(EVERY_S)


def own_gpus(node: str, uuids: Callable[[], Collection[str]]) -> Callable[[Sample], bool]:
    """Whether a sample is of this node: a Service may have answered with another node's exporter.

    uuids: devices of this node as the agent knows them, none where it reads none.
    """

    def is_own(sample: Sample) -> bool:
        known = uuids()
        if sample.gpu in known:
            return True
        if not sample.host:
            return not known
        return sample.host == node or sample.host.startswith(f"{node}.") or node.startswith(f"{sample.host}.")

    return is_own


def page_of(url: str, node: str, address: str) -> str:
    """The exporter's page, with this node's name and IP address in it. Raises ConfigError where none is known."""
    if "{address}" in url and not address:
        raise ConfigError(Mistake("health.dcgm_url", "the node's address is not known", "set NODE_ADDRESS"))
    return url.replace("{node}", node).replace("{address}", f"[{address}]" if ":" in address else address)
