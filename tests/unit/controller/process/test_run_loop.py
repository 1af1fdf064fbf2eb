"""Loop of the operator: cycles only while this process leads, and none before earlier leaders are fenced off."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import structlog

from cluster.actions import Action
from cluster.errors import ActionError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.cycle import Cycle
from controller.metrics.registry import Meter
from controller.ports import Outcome
from controller.process.main import Heart, Operator, run_loop
from controller.recording.shown_settings import settings_from
from controller.report.cycle_reporter import CycleReporter
from tests.builders.fleet import node, world


@dataclass
class Process:
    """The operator's loop with fakes around it, which write down what happens; it ends after some passes."""

    leads: Callable[[int], bool]
    """Whether it leads, by the number of the pass."""
    passes: int = 4
    is_fenced: bool = True
    is_synced: bool = True
    events: list[str] = field(default_factory=list)
    stop: Event = field(default_factory=Event)
    epoch: int = 3
    _pass: int = 0

    def may_write(self) -> bool:
        self._pass += 1
        if self._pass >= self.passes:
            self.stop.set()
        return self.leads(self._pass)

    def fence(self) -> bool:
        self.events.append("fence")
        return self.is_fenced

    def observe(self) -> Snapshot:
        self.events.append("observe")
        return world([node("a")])

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        return Plan()

    def apply(self, actions: Sequence[Action]) -> Sequence[ActionError | None]:
        return [None for _ in actions]

    def report(self, plan: Plan, outcome: Outcome) -> None:
        return None

    def put(self, cycle: Cycle) -> None:
        return None

    def run(self, **settings: Any) -> list[str]:
        known, _ = settings_from({"identity": "one", **settings})
        reporter = CycleReporter(Meter(), structlog.get_logger(), time.time)
        me: Any = self
        operator = Operator(
            known, me, me, me, reporter, Heart(), Event(), lambda: self.is_synced, self.fence, me, None, 0, 0
        )
        run_loop(operator, self.stop)
        return self.events


def test_a_process_that_does_not_lead_observes_and_plans_nothing() -> None:
    assert Process(lambda _: False).run() == []


def test_a_new_leader_waits_until_earlier_leaders_are_fenced_off_before_its_first_cycle() -> None:
    assert Process(lambda number: number >= 2).run(fenced=True)[:2] == ["fence", "observe"]


def test_a_leader_is_fenced_once_in_its_term_and_again_in_the_next() -> None:
    events = Process(lambda number: number not in (3, 4), passes=8).run(fenced=True)

    assert events == ["fence", "observe", "fence", "observe"]


def test_where_the_fence_is_not_enforced_the_leader_acts_all_the_same() -> None:
    assert Process(lambda _: True, is_fenced=False).run(fenced=True) == ["fence", "observe"]


def test_nothing_is_planned_before_every_watch_is_synced() -> None:
    assert Process(lambda _: True, is_synced=False).run(fenced=True) == ["fence"]
