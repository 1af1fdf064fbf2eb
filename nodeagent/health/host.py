"""Evidence of the host: one small interface, and a scripted form of it."""

from collections.abc import Sequence
from typing import Protocol

from health.records.frames import Evidence


class HostEvidence(Protocol):
    """One source of evidence on a node."""

    def read(self, now_s: float) -> Sequence[Evidence]:
        """All that is known now, with its age; never raises. now_s: clock that counts since boot."""
        ...


class ScriptedEvidence:
    """Evidence that a test or a demonstration states: instants, and what is known from then on."""

    def __init__(self, script: Sequence[tuple[float, Evidence]]) -> None:
        self._script = script

    def read(self, now_s: float) -> Sequence[Evidence]:
        return tuple(
            Evidence(
                each.source, each.code, each.subject, now_s - at_s, each.words, each.pod, each.rank, each.speed_share
            )
            for at_s, each in self._script
            if at_s <= now_s
        )
