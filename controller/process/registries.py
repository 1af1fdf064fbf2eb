"""Registries of the operator process: its kinds, facts, deciders and loops."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from controller.api.kind import Kind
from controller.api.kinds import KINDS
from controller.deciders.decider import Entry
from controller.deciders.pipeline import ORDER
from controller.loops.autoscaler import loop as autoscaler
from controller.loops.health import loop as health
from controller.loops.isolation import loop as isolation
from controller.loops.loop import ControlLoop
from controller.loops.power import control as power
from controller.settings import OperatorSettings
from controller.snapshot.builder import FACTS
from controller.snapshot.scalers import Fact, Facts

LoopOf = Callable[[OperatorSettings], ControlLoop | None]
"""Makes a loop as the settings configure it; None where they do not enable it. Raises ConfigError."""
LOOPS: tuple[LoopOf, ...] = (
    power.enabled,
    autoscaler.enabled,
    health.enabled,  # behind power, whose caps are facts of health
    isolation.enabled,
)
"""Loops beside the planning cycle. A decider whose facts are objects of its kinds needs none."""


@dataclass(frozen=True, slots=True)
class Registries:
    """All registries of an operator; a test adds to them what a new folder brings."""

    kinds: tuple[Kind, ...] = KINDS
    facts: Facts = FACTS
    order: tuple[Entry, ...] = ORDER
    loops: tuple[LoopOf, ...] = LOOPS

    def plus(self, *, kind: Kind, fact: Fact, decider: Entry) -> "Registries":
        """These registries with one more line in each, as a new decider needs."""
        order = (*self.order[:-1], decider, self.order[-1])
        return replace(self, kinds=(*self.kinds, kind), facts=(*self.facts, (kind, fact)), order=order)


PRODUCT = Registries()
