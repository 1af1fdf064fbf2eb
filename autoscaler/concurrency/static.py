"""Static limit: what was configured, whatever is observed."""

from dataclasses import dataclass

from autoscaler.concurrency.tuner import Decision
from cluster.autoscaling import Observation


@dataclass(frozen=True, slots=True)
class Static:
    """Tuner that never changes its limit; its state is empty."""

    limit: int

    def first(self) -> tuple[()]:
        return ()

    def decide(self, state: tuple[()], seen: Observation) -> Decision[tuple[()]]:  # noqa: ARG002 (the interface has it)
        return Decision(self.limit, "Fixed", state)
