"""Task "mix_search": searches the mixes of services for which plans had no work, each at prices of its stock.

An answer is a start and a bound of the next plan's own search, for exactly the question that it names. A bad mix costs
that plan time, and it is never used unchecked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from cluster.frame import Buffer, FrameError, framed, unframed
from controller.background.tasks import Background, BackgroundTask
from placement.mix.memory import SearchMemory
from placement.mix.own_search import OwnAnswer, OwnQuestion, searched

log = structlog.get_logger(__name__)

KIND = "mix_search"
BATCH = 8
"""Services in a task. Chosen: 1 to 10 s of a core, which is what a lost worker has to repeat."""


@dataclass(frozen=True, slots=True)
class _Batch:
    questions: tuple[OwnQuestion, ...]


@dataclass(frozen=True, slots=True)
class _Answers:
    answers: tuple[OwnAnswer, ...]


def tasks_of(questions: Sequence[OwnQuestion]) -> tuple[BackgroundTask, ...]:
    """Tasks that search for answers to these questions."""
    batches = (tuple(questions[n : n + BATCH]) for n in range(0, len(questions), BATCH))
    return tuple(BackgroundTask(KIND, (framed(_Batch(batch)),)) for batch in batches)


def answered(batch: Buffer) -> bytes:
    """The answers, to be read by `answers_in`, to the questions in a task's input."""
    return framed(_Answers(tuple(map(searched, unframed(_Batch, batch).questions))))


def answers_in(result: Buffer) -> tuple[OwnAnswer, ...]:
    """Answers of a task. Raises FrameError."""
    return unframed(_Answers, result).answers


class MixSearches:
    """Gives the open questions of plans to background tasks, and what they find to the memory of the next plan."""

    def __init__(self, memory: SearchMemory, background: Background) -> None:
        self._memory, self._background = memory, background
        self.asked = dict[str, BackgroundTask]()
        """Open tasks by digest."""

    def turn(self) -> None:
        """Takes results, and asks once no task is open: until then the questions of later plans would change nothing.

        Called between two plans.
        """
        for result in self._background.results(KIND):
            self.asked.pop(result.digest, None)
            try:
                self._memory.learn(() if result.error else answers_in(result.value))
            except FrameError as error:
                log.warning("mixes cannot be read; they are searched again later", why=str(error))
        if not self.asked:
            self.asked = {task.digest: task for task in tasks_of(self._memory.open)}
            self._memory.open = []
        # Also those that were asked for before: a replica that led again in between has forgotten them.
        self._background.submit(self.asked.values())
