"""How it stands with a brain, and with a request to it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.brain.wire import Pong, Ready

UNWANTED = "no brain is wanted here: this replica does not lead"

State = Literal["away", "starting", "up"]


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request to the brain that has not been answered."""

    request: int
    epoch: int
    sent_at_s: float
    deadline_s: float

    def is_over(self, at_s: float) -> bool:
        return at_s >= self.sent_at_s + self.deadline_s


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request brought: a plan's frame, or the reason why there is none."""

    plan: bytes = b""
    reason: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with the brain."""

    state: State = "away"
    trusted: bool = True
    ray: str = ""
    """Its version."""
    starts: int = 0
    """Processes that were started, or servers that were connected to."""
    losses: Counter[str] = field(default_factory=Counter)
    """Why brains were given up: `ended`, `silent`, `useless`, `unready`, `refused`, `unreachable`, `garbled`."""
    why: str = UNWANTED
    """In words, why it is not up."""
    planners_up: int = 0
    planner_restarts: int = 0
    planner_processes: tuple[int, ...] = ()
    late: int = 0
    """Answers that came too late, or belonged to an earlier term."""
    slots_up: tuple[str, ...] = ()
    start_s: float = 0.0
    """How long the last start took."""


def planners_of(message: Ready | Pong) -> dict[str, Any]:
    """What a brain tells of its planners and slots, as fields of `Standing`."""
    if isinstance(message, Ready):
        return {"planners_up": message.planners, "planner_restarts": 0, "planner_processes": message.processes}
    return {
        "planners_up": message.planners_up,
        "planner_restarts": message.planner_restarts,
        "planner_processes": message.processes,
        "slots_up": message.slots_up,
    }
