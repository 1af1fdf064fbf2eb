"""Tests of obedience: liars that bursts excuse are named by them, honest devices only lose a little for a moment."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import BoolArray, FloatArray
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_UNKNOWN, PowerReadings
from power.allocator.state import Allocator, AllocatorState, Grants, allocator_of, first_state
from power.allocator.step import step
from power.estimation.estimator import FAULTS
from power.rules import PowerRules
from tests.builders.power import Device, row_of

RULES = PowerRules(stuck_s=0.0)
PERIOD_S = 2.0
COUNT = 20
AT_WORK_W = 300.0

Behaviour = Callable[[FloatArray, FloatArray], FloatArray]
"""(limits granted, highest bursts granted) → draw of each device that wants AT_WORK_W."""


def honest(cap_w: FloatArray, burst_to_w: FloatArray) -> FloatArray:
    return np.minimum(AT_WORK_W, np.maximum(cap_w, burst_to_w))


def errs(cap_w: FloatArray, burst_to_w: FloatArray) -> FloatArray:
    """Limiters and meters err by a twentieth."""
    return np.minimum(AT_WORK_W, 1.05 * np.maximum(cap_w, burst_to_w))


def lies(cap_w: FloatArray, burst_to_w: FloatArray) -> FloatArray:
    return np.full(len(cap_w), AT_WORK_W)


class Row:
    """Devices that always work and report to obey; a lease is in force when the next reading is taken."""

    def __init__(self, behaviour: Behaviour, rules: PowerRules = RULES, **device: float) -> None:
        devices = [Device(f"g{n}", f"n{n}", **device) for n in range(COUNT)]  # type: ignore[arg-type]
        self.behaviour = behaviour
        self.allocator: Allocator = allocator_of(row_of(devices, COUNT * 450.0), rules)
        self.state: AllocatorState = first_state(self.allocator)
        self.now_s = 0.0
        self.phase = np.full(COUNT, PHASE_MEMORY_BOUND)
        self.cap_w, self.burst_to_w = np.full(COUNT, 400.0), np.full(COUNT, 400.0)
        self.sequence = self.state.book.sequence
        self.seen: list[tuple[float, Grants, BoolArray, tuple[str, ...]]] = []
        """(instant, grants, devices under test, faults) of every step."""

    def readings(self) -> PowerReadings:
        works_w = self.behaviour(self.cap_w, self.burst_to_w) + 0.01 * (self.now_s % 7)
        return replace(
            self.allocator.tree.table.readings,
            at_s=np.full(COUNT, self.now_s),
            draw_w=np.where(self.phase == PHASE_IDLE, 60.0, works_w),
            cap_w=self.cap_w,
            sequence=self.sequence,
            phase=self.phase,
        )

    def pass_time(self, seconds: float) -> "Row":
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.state, grants = step(self.allocator, self.state, self.readings(), self.now_s)
            faults = tuple(FAULTS[fault] for fault in self.state.estimate.fault.tolist())
            self.seen.append((self.now_s, grants, self.state.proof.asked_w < np.inf, faults))
            self.cap_w, self.burst_to_w, self.sequence = grants.cap_w, grants.burst_to_w, grants.sequence
            self.now_s += PERIOD_S
        return self

    def tested(self) -> BoolArray:
        """Who was tested so far."""
        return np.array([tests for _, _, tests, _ in self.seen]).any(axis=0)

    def named(self) -> set[str]:
        return {fault for _, _, _, faults in self.seen for fault in faults} - {""}


def test_a_liar_is_named_within_three_control_delays_of_the_start_of_its_test() -> None:
    row = Row(lies).pass_time(400.0)

    for device in range(COUNT):
        began_s = next(at_s for at_s, _, tests, _ in row.seen if tests[device])
        named_s = next(at_s for at_s, _, _, faults in row.seen if faults[device] == "OverCap")
        assert named_s - began_s <= RULES.culprit_periods * RULES.control_delay_s


@pytest.mark.parametrize(("settle_s", "named"), [(2.0, {"OverCap"}), (6.0, set())])
def test_a_liar_whose_work_ends_is_judged_as_soon_as_its_limit_must_show(settle_s: float, named: set[str]) -> None:
    """However long orders travel: a reading that settled counts, one that came before does not."""
    row = Row(lies, replace(RULES, control_delay_s=6.0, settle_s=settle_s))
    while not row.tested().any():
        row.pass_time(PERIOD_S)
    row.pass_time(2 * PERIOD_S)  # it confirms the test, and draws more for one period after that

    row.phase = np.full(COUNT, PHASE_IDLE)

    assert row.pass_time(60.0).named() == named


@pytest.mark.parametrize("behaviour", [honest, errs])
def test_an_honest_device_is_tested_and_never_named(behaviour: Behaviour) -> None:
    row = Row(behaviour).pass_time(2000.0)

    assert row.tested().all()
    assert row.named() == set()


def test_a_test_ends_as_soon_as_obedience_was_seen_and_the_lease_is_what_it_was() -> None:
    row = Row(honest).pass_time(400.0)

    longest = max(sum(tests[device] for _, _, tests, _ in row.seen) for device in range(COUNT))
    assert longest * PERIOD_S <= 2 * RULES.control_delay_s
    assert (row.cap_w >= AT_WORK_W).all()


def test_a_test_asks_for_less_than_is_drawn_without_any_burst_and_takes_no_credit() -> None:
    row = Row(honest).pass_time(400.0)

    for _, grants, tests, _ in row.seen:
        assert (grants.cap_w[tests] <= 0.86 * AT_WORK_W).all()
        assert (grants.burst_to_w[tests] == grants.cap_w[tests]).all()
        assert (grants.burst_j[tests] > 0).all()


def test_few_are_tested_at_once_and_nobody_again_before_its_time() -> None:
    row = Row(honest).pass_time(2400.0)

    at_once = [int(tests.sum()) for _, _, tests, _ in row.seen]
    assert max(at_once) == 1  # 6 % of 20
    under = np.array([tests for _, _, tests, _ in row.seen])
    starts = (under[1:] & ~under[:-1]).sum(axis=0)
    assert starts.min() >= 2
    assert starts.max() <= 2400.0 / RULES.prove_every_s + 1


@pytest.mark.parametrize("phase", [PHASE_UNKNOWN, None])
def test_where_phases_alternate_or_are_not_told_tests_are_rarer(phase: int | None) -> None:
    row = Row(honest)
    while row.now_s < 2400.0:
        mixed = np.random.default_rng(int(row.now_s)).choice([PHASE_COMPUTE_BOUND, PHASE_MEMORY_BOUND], COUNT)
        row.phase = mixed if phase is None else np.full(COUNT, phase)
        row.pass_time(PERIOD_S)

    under = np.array([tests for _, _, tests, _ in row.seen])
    assert under.any(axis=0).all()
    late = np.array([at_s for at_s, *_ in row.seen]) > 600.0  # by then every device was tested once
    assert (under[late][1:] & ~under[late][:-1]).sum(axis=0).max() <= 1


def test_nobody_is_tested_below_its_useful_floor() -> None:
    assert not Row(honest, floor_w=290.0).pass_time(100.0).tested().any()


def test_nobody_idle_is_tested() -> None:
    row = Row(honest)
    row.phase = np.full(COUNT, PHASE_IDLE)

    assert not row.pass_time(100.0).tested().any()


@pytest.mark.parametrize("rules", [replace(RULES, burst_share=0.0), replace(RULES, prove_every_s=0.0)])
def test_where_no_lease_allows_bursts_or_no_test_is_wanted_there_is_none(rules: PowerRules) -> None:
    assert not Row(honest, rules).pass_time(100.0).tested().any()


def test_who_owes_more_than_a_burst_explains_is_tested_whoever_is_due() -> None:
    row = Row(honest).pass_time(400.0)  # every device was tested and is not due again before 600 s
    row.state = replace(
        row.state, account=replace(row.state.account, credit_j=np.where(np.arange(COUNT) == 7, -500.0, 1.0))
    )

    row.pass_time(PERIOD_S)

    assert np.flatnonzero(row.state.proof.asked_w < np.inf).tolist() == [7]
    assert row.pass_time(20.0).named() == set()


def test_who_owes_is_tested_at_its_lease_even_below_its_useful_floor() -> None:
    """An idle device keeps its lowest limit; one that works on there without credit is to keep to it."""
    row = Row(honest, floor_w=290.0)
    devices = [Device(f"g{n}", f"n{n}", floor_w=290.0) for n in range(COUNT)]
    row.allocator = allocator_of(row_of(devices, COUNT * 220.0), RULES)
    row.state = first_state(row.allocator)
    row.pass_time(200.0)
    assert row.cap_w[7] < 290.0
    assert not row.tested().any()
    row.behaviour = lies
    row.state = replace(
        row.state, account=replace(row.state.account, credit_j=np.where(np.arange(COUNT) == 7, -500.0, 1000.0))
    )

    row.pass_time(PERIOD_S)

    assert np.flatnonzero(row.state.proof.asked_w < 290.0).tolist() == [7]
    assert "OverCap" in row.pass_time(10.0).named()


def test_after_a_pause_of_the_controller_nobody_is_named_for_what_it_could_not_tell() -> None:
    """A grant was in transit when all devices fell silent: none could confirm it."""
    row = Row(honest).pass_time(100.0)
    row.state, grants = step(row.allocator, row.state, row.readings(), row.now_s, np.array([COUNT * 200.0]))
    assert grants.changed.any()

    row.now_s += 3600.0

    assert row.pass_time(60.0).named() == set()
