"""Recording in the operator: each cycle into the ring, and the ring served as the files of a support bundle."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from controller.cycle import Cycle
from controller.process.probes import Download
from controller.recording.bundle import Sink, about, files_of, write_tar
from controller.recording.ring import Ring
from controller.recording.shown_settings import shown
from controller.settings import OperatorSettings

log = structlog.get_logger(__name__)

PATH = "/debug/bundle"


@dataclass(frozen=True, slots=True)
class Recorder:
    """The ring of an operator, or none where recording is off."""

    settings: OperatorSettings
    ring: Ring | None

    @property
    def downloads(self) -> Mapping[str, Download]:
        """What the probe port serves of it."""
        return {} if self.ring is None else {PATH: self.send}

    def put(self, cycle: Cycle) -> None:
        """Record a cycle. What cannot be recorded is logged: the cycle itself is done."""
        if self.ring is None:
            return
        try:
            self.ring.put(cycle)
        except Exception:
            log.exception("a cycle was not recorded")

    def send(self, to: Sink) -> None:
        """The files of a bundle as a tar stream."""
        if self.ring is None:
            return
        recording, at_s = self.ring.copy(), time.time()
        says = about(recording, shown(self.settings), self.settings.identity, at_s)
        write_tar(to, files_of(says, recording), at_s)


def recorder_of(settings: OperatorSettings) -> Recorder:
    """The recorder that the settings ask for."""
    asked = settings.record
    ring = Ring(asked.keep_s, asked.most_cycles, asked.most_bytes) if asked.enabled else None
    return Recorder(settings, ring)
