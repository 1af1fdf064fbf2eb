"""Log of problems with the devices of nodes."""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from cluster.errors import Mistake

log = structlog.get_logger("devices")


@dataclass(slots=True)
class DeviceTroubles:
    """Logs each problem with the devices of a node when it appears and when it is resolved."""

    known: frozenset[Mistake] = frozenset()

    def tell(self, found: Iterable[Mistake]) -> None:
        now = frozenset(found)
        for each in sorted(now - self.known, key=str):
            log.warning("devices of a node cannot be used", node=each.place, why=each.problem, remedy=each.remedy)
        for each in sorted(self.known - now, key=str):
            log.info("devices of a node can be used again", node=each.place, was=each.problem)
        self.known = now
