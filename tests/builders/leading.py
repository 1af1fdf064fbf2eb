"""Leadership as a test decides it, and power's view of a cluster that stays."""

from dataclasses import dataclass, field

from controller.loops.power.loop import PowerView


@dataclass
class Leading:
    """A process that leads or does not."""

    epoch: int = 1
    leads: bool = True
    refused: int = 0
    """Writes that were refused because another process leads."""
    contradictions: list[str] = field(default_factory=list)
    """Paths of objects that the server has with another UID."""

    def may_write(self) -> bool:
        return self.leads

    def fenced(self) -> None:
        self.refused += 1

    def contradicted(self, path: str) -> None:
        self.contradictions.append(path)


@dataclass(frozen=True)
class Unreported:
    """A leader in this epoch of the Lease, whose reports nobody reads."""

    of_lease: int = 1

    def epoch(self) -> int:
        return self.of_lease

    def report(self, *_: object) -> None:
        return None


@dataclass
class FixedSource:
    """A cluster that power sees like this."""

    view: PowerView | None

    def see(self) -> PowerView | None:
        return self.view
