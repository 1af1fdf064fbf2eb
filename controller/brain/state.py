"""State of a brain, and of a request to it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.brain.wire import Pong, Ready

UNWANTED = "no brain is wanted here: this replica does not lead"

State = Literal["away", "starting", "up"]


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Request to the brain that has not been answered."""

    request: int
    epoch: int
    sent_at_s: float
    deadline_s: float

    def is_over(self, at_s: float) -> bool:
        return at_s >= self.sent_at_s + self.deadline_s


@dataclass(frozen=True, slots=True)
class Reply:
    """Outcome of a request: a plan's frame, or the reason why there is none."""

    plan: bytes = b""
    reason: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class BrainState:
    """State of the brain."""

    state: State = "away"
    trusted: bool = True
    ray: str = ""
    """Version of Ray."""
    starts: int = 0
    """Number of processes started, or of servers connected to."""
    losses: Counter[str] = field(default_factory=Counter)
    """Lost brains by reason: `ended`, `silent`, `useless`, `unready`, `refused`, `unreachable`, `garbled`,
    `broken`."""
    why: str = UNWANTED
    """Explanation why it is not up, in words."""
    planners_up: int = 0
    planner_restarts: int = 0
    planner_processes: tuple[int, ...] = ()
    late: int = 0
    """Answers that came after their deadline, or belonged to an earlier Lease epoch."""
    slots_up: tuple[str, ...] = ()
    start_s: float = 0.0
    """Seconds that the last start took."""


def planners_of(message: Ready | Pong) -> dict[str, Any]:
    """State of planners and slots in a brain's message, as fields of `BrainState`."""
    if isinstance(message, Ready):
        return {"planners_up": message.planners, "planner_restarts": 0, "planner_processes": message.processes}
    return {
        "planners_up": message.planners_up,
        "planner_restarts": message.planner_restarts,
        "planner_processes": message.processes,
        "slots_up": message.slots_up,
    }
