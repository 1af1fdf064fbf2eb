"""Loop of the operator: cycles only while this process leads, and none before earlier leaders are fenced off."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from threading import Event
from types import SimpleNamespace
from typing import Any

import structlog

from cluster.actions import Action
from cluster.errors import ActionError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.cycle import Cycle
from controller.guard import Limits
from controller.kube_world.reservations import Reservations
from controller.loops.loop import CycleTrigger
from controller.metrics.registry import Meter
from controller.ports import Outcome
from controller.process.cluster import identity_of
from controller.process.main import Heartbeat, Operator, run_loop
from controller.recording.bundle import settings_from
from controller.report.cycle_reporter import CycleReporter
from tests.builders.fleet import node, world


@dataclass
class Process:
    """The operator's loop with fakes around it, which write down what happens; it ends after some passes."""

    leads: Callable[[int], bool]
    """Whether it leads, by the number of the pass."""
    passes: int = 4
    is_fenced: bool = True
    has_synced: bool = True
    events: list[str] = field(default_factory=list)
    stop: Event = field(default_factory=Event)
    fails: Callable[[int], bool] = lambda _: False
    """Whether a cycle fails, by its number from 1."""
    epochs: Callable[[int], int] = lambda _: 3
    """Epoch of the Lease, by the number of the pass."""
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    trigger: CycleTrigger = field(default_factory=CycleTrigger)
    limits: Limits = field(default_factory=Limits)
    reservations: Reservations = field(default_factory=Reservations)
    asked: tuple[str, ...] = ()
    """Open background tasks."""
    rest_s: float = 0.0
    """Time until the Lease would have expired that it took early."""
    _pass: int = 0
    _cycle: int = 0

    @property
    def epoch(self) -> int:
        return self.epochs(self._pass)

    def may_write(self) -> bool:
        self._pass += 1
        if self._pass >= self.passes:
            self.stop.set()
        return self.leads(self._pass)

    def is_synced(self) -> bool:
        return self.has_synced

    def fence(self) -> bool:
        self.events.append("fence")
        return self.is_fenced

    def listed_anew(self) -> None:
        self.events.append("list")

    def want(self, *, wanted: bool) -> None:
        return None

    def learn(self, plan: Plan) -> None:
        return None

    def observe(self) -> Snapshot:
        self.events.append("observe")
        self._cycle += 1
        self.trigger.changed()  # so that the next cycle does not wait for the resync
        if self.fails(self._cycle):
            raise TypeError("a bug")
        return world([node("a")])

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        return Plan()

    def apply(self, actions: Sequence[Action]) -> Sequence[ActionError | None]:
        return [None for _ in actions]

    def rehearse(self, actions: Sequence[Action]) -> Sequence[ActionError | None]:
        return [None for _ in actions]

    def report(self, plan: Plan, outcome: Outcome) -> None:
        return None

    def put(self, cycle: Cycle) -> None:
        return None

    def step_down(self) -> None:
        self.events.append(f"step down: {self.heartbeat.readiness()}")

    def run(self, **settings: Any) -> list[str]:
        known, _ = settings_from({"identity": "one", **settings})
        reporter = CycleReporter(Meter(), structlog.get_logger(), time.time)
        me: Any = self
        self.leadership = self.world = self.brain = me
        self.thread = SimpleNamespace(run=lambda _: None)
        operator = Operator(known, me, me, me, self.limits, me, me, (me,), reporter, me, self.heartbeat)
        run_loop(operator, self.stop)
        return self.events

    def steps(self, **settings: Any) -> list[str]:
        """What happened, without the cycles that follow a cycle since something changed meanwhile."""
        return [each for each, _ in groupby(self.run(**settings))]


def test_a_process_that_does_not_lead_observes_and_plans_nothing() -> None:
    assert Process(lambda _: False).run() == []


def test_a_bug_in_the_searches_beside_the_plans_is_a_failed_cycle_and_ends_no_loop() -> None:
    process = Process(lambda _: True, asked=("a task",))

    process.run()  # it has no `turn`

    assert process.heartbeat.failures


def test_a_new_leader_waits_until_earlier_leaders_are_fenced_off_before_its_first_cycle() -> None:
    assert Process(lambda number: number >= 2).run(fenced=True)[:3] == ["fence", "list", "observe"]


def test_a_leader_is_fenced_once_in_its_term_and_again_in_the_next() -> None:
    events = Process(lambda number: number not in (3, 4), passes=8).steps(fenced=True)

    assert events == ["fence", "list", "observe", "fence", "list", "observe"]


def test_a_leader_that_lost_the_lease_and_took_it_again_between_two_looks_is_in_a_new_term() -> None:
    process = Process(lambda _: True, passes=5, epochs=lambda number: 3 if number < 3 else 5)

    assert process.steps(fenced=True) == ["fence", "list", "observe", "fence", "list", "observe"]


def test_without_the_fence_a_leader_that_took_the_lease_early_lets_it_expire_before_it_acts() -> None:
    assert Process(lambda _: True, is_fenced=False, rest_s=1e6).steps(fenced=True) == ["fence", "list"]
    assert Process(lambda _: True, rest_s=1e6).steps(fenced=True) == ["fence", "list", "observe"]


def test_a_term_without_a_fence_begins_with_new_lists_too() -> None:
    """Who slept while the store went back knows objects that are no more."""
    assert Process(lambda _: True).steps(fenced=False) == ["list", "observe"]


def test_where_the_fence_is_not_enforced_the_leader_acts_all_the_same() -> None:
    assert Process(lambda _: True, is_fenced=False).steps(fenced=True) == ["fence", "list", "observe"]


def test_short_cycles_follow_one_another_sooner_than_long_ones() -> None:
    short = Process(lambda _: True, passes=8).run(interval_s=60.0)

    assert short.count("observe") >= 2, "eight passes take 0.4 s, and a cycle of nothing keeps nobody waiting for 60 s"


def test_nothing_is_planned_before_every_watch_is_synced() -> None:
    assert Process(lambda _: True, has_synced=False).run(fenced=True) == ["fence", "list"]


def test_after_three_failed_cycles_in_a_row_it_is_not_ready_and_steps_down() -> None:
    process = Process(lambda _: True, passes=9, fails=lambda number: number != 3)

    events = process.run(interval_s=0.05)

    down = "step down: the last 3 cycles failed: see the log"
    assert events[:8] == ["list", *["observe"] * 6, down]


def test_a_cycle_that_succeeds_makes_it_ready_again() -> None:
    process = Process(lambda _: True, passes=5, fails=lambda number: number <= 3)

    process.run(interval_s=0.05)

    assert process.heartbeat.readiness() is None


def test_processes_of_one_identity_have_each_a_name_of_its_own_in_the_lease() -> None:
    given, _ = settings_from({"identity": "of-one-file"})
    drawn, _ = settings_from({})

    first, second = identity_of(given), identity_of(given)

    assert first != second
    assert first.startswith("of-one-file_")
    assert identity_of(drawn) == drawn.identity


def test_a_cycle_waits_until_what_changes_together_has_arrived_but_not_for_ever() -> None:
    now_s = 0.0
    trigger = CycleTrigger(lambda: now_s)
    trigger.changed()
    now_s = 0.03
    trigger.changed()

    assert not trigger.has_settled(0.04, 1.0), "the second change is 0 s old"
    now_s = 0.08
    assert trigger.has_settled(0.04, 1.0)
    for now_s in (0.5, 0.99, 1.01):  # noqa: B007 - the clock that the trigger reads
        trigger.changed()
    assert trigger.has_settled(0.04, 1.0), "the first change is a second old"
