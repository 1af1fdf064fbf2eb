"""Leadership as a test decides it, and power's view of a cluster that stays."""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.loops.power.loop import PowerView
from power.control.state import LearnedSpikes


@dataclass
class Leading:
    """A process that leads or does not."""

    epoch: int = 1
    leads: bool = True

    def may_write(self) -> bool:
        return self.leads


@dataclass
class FixedSource:
    """A cluster that power sees like this; no controller before learnt anything of it."""

    view: PowerView | None

    def see(self) -> PowerView | None:
        return self.view

    def learned(self, memory_s: float) -> Mapping[str, LearnedSpikes]:
        return {}
