"""Evidence of the host: one small interface."""

from collections.abc import Sequence
from typing import Protocol

from health.records.report import Evidence


class HostEvidence(Protocol):
    """One source of evidence on a node."""

    def read(self, now_s: float) -> Sequence[Evidence]:
        """All that is known now, with its age; never raises. now_s: clock that counts since boot."""
        ...
