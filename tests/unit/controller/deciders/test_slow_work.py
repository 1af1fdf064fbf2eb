"""Slow work beside the loop: begun after a plan, adopted at the beginning of the next."""

from threading import Event

import pytest

from controller.deciders.memory import SlowWorker, Task
from placement.engine.policy import Adopt


class Work:
    """Work that ends when it may, and what was adopted of it."""

    def __init__(self) -> None:
        self.may_end = Event()
        self.adopted = 0

    def __call__(self) -> Adopt:
        self.may_end.wait(timeout=10)

        def adopt() -> None:
            self.adopted += 1

        return adopt


def test_a_result_is_adopted_once_and_not_before_it_is_asked_for() -> None:
    work, worker = Work(), SlowWorker()
    work.may_end.set()
    worker.task = Task(work)
    before = work.adopted

    assert worker.finish(within_s=10.0)
    assert worker.finish(within_s=10.0)
    assert (before, work.adopted) == (0, 1)


def test_a_result_that_is_late_is_kept_for_the_next_plan() -> None:
    work, worker = Work(), SlowWorker()
    worker.task = Task(work)

    late = worker.finish(within_s=0.0)
    was_busy = worker.task is not None
    work.may_end.set()

    assert not late
    assert was_busy
    assert worker.finish(within_s=float("inf"))
    assert work.adopted == 1


def test_an_error_is_raised_where_the_result_is_asked_for_and_only_once() -> None:
    def fails() -> Adopt:
        raise RuntimeError("the solver failed")

    worker = SlowWorker()
    worker.task = Task(fails)

    with pytest.raises(RuntimeError, match="the solver failed"):
        worker.finish(within_s=10.0)
    assert worker.finish(within_s=10.0)
