"""Wiring of the operator's brain (its planning process) and of its metrics."""

from dataclasses import dataclass

from controller.brain.from_settings import brain_from
from controller.brain.remote import BrainMetrics, RayBrain
from controller.deciders.pipeline import SECTIONS, Sections
from controller.kube.leader_election import Leadership
from controller.metrics.registry import Meter
from controller.ports import Brain
from controller.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class OnRay:
    """Brain on Ray, and its metrics."""

    brain: RayBrain
    teller: BrainMetrics

    def lead(self, *, leads: bool) -> None:
        """Starts the brain of a replica that leads; stops that of one that stands by."""
        self.brain.lead(leads=leads)

    def tell(self) -> None:
        """Updates the metrics."""
        self.teller.publish(self.brain, self.brain.background.counts)


def operators_brain(
    settings: OperatorSettings, meter: Meter, leadership: Leadership, sections: Sections = SECTIONS
) -> tuple[Brain, OnRay | None]:
    """The brain as the settings configure it, and the same as `OnRay` where it runs on Ray."""
    brain = brain_from(settings, epoch=lambda: leadership.epoch, sections=sections)
    return brain, OnRay(brain, BrainMetrics(meter)) if isinstance(brain, RayBrain) else None
