"""Evidence of a host that a test states."""

from collections.abc import Sequence

from health.records.frames import Evidence


class ScriptedEvidence:
    """Evidence that a test states: instants, and what is known from then on."""

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
