"""Recording of cycles in the operator: stored in a ring, which is served as the files of a support bundle."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from controller.cycle import Cycle
from controller.process.probes import Download
from controller.recording.bundle import Sink, about, files_of, shown, write_tar
from controller.recording.ring import Ring
from controller.settings import OperatorSettings

log = structlog.get_logger(__name__)

PATH = "/debug/bundle"


@dataclass(frozen=True, slots=True)
class Recorder:
    """Recorder of an operator; without a ring where recording is off."""

    settings: OperatorSettings
    ring: Ring | None

    @property
    def downloads(self) -> Mapping[str, Download]:
        """Downloads that the probe port serves, by path."""
        return {} if self.ring is None else {PATH: self.send}

    def put(self, cycle: Cycle) -> None:
        """Records a cycle. A failure to record is only logged: the cycle itself is complete."""
        if self.ring is None:
            return
        try:
            self.ring.put(cycle)
        except Exception:
            log.exception("a cycle was not recorded")

    def send(self, to: Sink) -> None:
        """Writes the files of a bundle as a tar stream."""
        if self.ring is None:
            return
        recording, at_s = self.ring.copy(), time.time()
        says = about(recording, shown(self.settings), self.settings.identity, at_s)
        write_tar(to, files_of(says, recording), at_s)


def recorder_of(settings: OperatorSettings) -> Recorder:
    """The recorder as the settings configure it."""
    asked = settings.record
    ring = Ring(asked.keep_s, asked.most_cycles, asked.most_bytes) if asked.enabled else None
    return Recorder(settings, ring)
