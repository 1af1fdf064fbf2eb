"""Thread for the slow work of a packing policy, beside the loop: begun after a plan, used from the next one on."""

from dataclasses import dataclass, field
from threading import Thread

from placement.engine.policy import Adopt, SlowWork


@dataclass(slots=True)
class Task:
    """Work in a thread of its own, with its result or its error."""

    work: SlowWork
    adopt: Adopt | None = None
    error: BaseException | None = None
    thread: Thread = field(init=False)

    def __post_init__(self) -> None:
        # One thread for each: it is due once in many plans, and a pool would be one more thing to close.
        self.thread = Thread(target=self._run, name="packing prices")
        self.thread.start()

    def _run(self) -> None:
        try:
            self.adopt = self.work()
        except BaseException as error:  # noqa: BLE001 - raised by `result` in the planner's thread
            self.error = error


@dataclass(slots=True)
class SlowWorker:
    """At most one piece of slow work at a time."""

    task: Task | None = None

    @property
    def is_busy(self) -> bool:
        return self.task is not None

    def begin(self, work: SlowWork) -> None:
        """Starts the work in a thread. Does not wait."""
        self.task = Task(work)

    def finish(self, within_s: float) -> bool:
        """Adopts the result, waiting for it. False when it is not ready in time; it is then kept for the next call.

        The work counts steps, not seconds, so only a machine that is very busy is late. Raises the work's error, once:
        the policy goes on with what it had.
        """
        task = self.task
        if task is None:
            return True
        task.thread.join(None if within_s == float("inf") else max(0.0, within_s))
        if task.thread.is_alive():
            return False
        self.task = None
        if task.error is not None:
            raise task.error
        if task.adopt is not None:
            task.adopt()
        return True
