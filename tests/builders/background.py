"""Background work for tests: the same tasks, run where they are submitted or when a test asks for it."""

from collections.abc import Iterable

from controller.background.kinds import KINDS
from controller.background.tasks import BackgroundTask, TaskResult


class Here:
    """Runs open tasks in this process, at once or with `run`."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.open: dict[str, BackgroundTask] = {}
        self.done: list[TaskResult] = []
        self._at_once = at_once

    def submit(self, tasks: Iterable[BackgroundTask]) -> None:
        for task in tasks:
            self.open.setdefault(task.digest, task)
        if self._at_once:
            self.run()

    def run(self) -> None:
        """Runs what is open."""
        for task in self.open.values():
            self.done.append(TaskResult(task.kind, task.digest, KINDS[task.kind](*task.inputs)))
        self.open.clear()

    def results(self, kind: str) -> list[TaskResult]:
        found = [each for each in self.done if each.kind == kind]
        self.done = [each for each in self.done if each.kind != kind]
        return found
