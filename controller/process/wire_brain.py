"""The operator's brain, and what reports on it."""

from dataclasses import dataclass

from controller.brain.from_settings import brain_from
from controller.brain.metrics import BrainTeller
from controller.brain.remote import RayBrain
from controller.deciders.registry import SECTIONS, Sections
from controller.kube.leader_election import Leadership
from controller.metrics.registry import Meter
from controller.ports import Brain
from controller.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class OnRay:
    """A brain on Ray, and its metrics."""

    brain: RayBrain
    teller: BrainTeller

    def lead(self, *, leads: bool) -> None:
        """Start the brain of a replica that leads; end that of one that stands by."""
        self.brain.lead(leads=leads)

    def tell(self) -> None:
        """Bring the metrics up to date."""
        self.teller.tell(self.brain, self.brain.background.counts)


def operators_brain(
    settings: OperatorSettings, meter: Meter, leadership: Leadership, sections: Sections = SECTIONS
) -> tuple[Brain, OnRay | None]:
    """The brain that the settings ask for, also as one on Ray where it is."""
    brain = brain_from(settings, epoch=lambda: leadership.epoch, sections=sections)
    return brain, OnRay(brain, BrainTeller(meter)) if isinstance(brain, RayBrain) else None
