"""Under hard limits: the power that a device was content with is remembered, so that caps do not move for ever."""

from dataclasses import replace

import numpy as np

from cluster.power import PHASE_COMPUTE_BOUND, PHASE_MEMORY_BOUND
from power.allocator.state import allocator_of, first_state
from power.allocator.step import step
from power.estimation.known_need import is_known, learnt, nothing_known
from power.rules import PowerRules
from tests.builders.power import Device, Domain, power_table

RULES = PowerRules(stuck_s=0.0, burst_share=0.0)
MODEST_W, PERIOD_S = 120.0, 2.0


class Rack:
    """One device that is content with little and two that want all, where watts are short, and others opted out."""

    def __init__(self) -> None:
        domains = [Domain("row", 2250.0), Domain("r0", 1e15, {"row": 1.0})]
        kinds = [("low", 700.0, 0.0, 0.0), *[("low", 300.0, 0.0, 0.25)] * 2]
        kinds += [*[("high", 300.0, 0.0, 0.0)] * 4, ("high", 300.0, 0.05, 0.25)]  # opted out: they only count
        devices = [
            Device(
                f"g{n}",
                "r0",
                class_name,
                max_w=max_w,
                floor_w=100.0,
                overshoot_share=overshoot,
                overhead_share=overhead,
                managed=n < 3,
            )
            for n, (class_name, max_w, overshoot, overhead) in enumerate(kinds)
        ]
        self.allocator = allocator_of(power_table(domains, devices), RULES)
        self.state = first_state(self.allocator)
        self.wants_w = np.array([MODEST_W, 240.0, 240.0, *[60.0] * 5])
        self.phase = np.full(8, PHASE_COMPUTE_BOUND)
        self.cap_w, self.sequence = self.allocator.tree.table.devices.max_w, self.state.book.sequence
        self.now_s = 0.0

    def pass_time(self, seconds: float) -> int:
        """How many steps changed anything."""
        moved = 0
        for _ in range(round(seconds / PERIOD_S)):
            self.now_s += PERIOD_S
            readings = replace(
                self.allocator.tree.table.readings,
                at_s=np.full(8, self.now_s),
                draw_w=np.minimum(self.wants_w, self.cap_w),
                cap_w=self.cap_w,
                sequence=self.sequence,
                phase=self.phase,
            )
            self.state, grants = step(self.allocator, self.state, readings, self.now_s)
            self.cap_w, self.sequence = grants.cap_w, grants.sequence
            moved += bool(grants.changed.any())
        return moved


def test_a_device_that_wants_little_does_not_keep_its_rack_moving() -> None:
    rack = Rack()
    rack.pass_time(10.0)

    assert rack.pass_time(RULES.known_s) <= 6  # where nothing is known 17


def test_who_wants_more_than_it_was_content_with_gets_it_when_that_is_forgotten() -> None:
    rack = Rack()
    rack.pass_time(20.0)
    had_w = rack.cap_w[0]

    rack.wants_w = np.array([400.0] * 3 + [60.0] * 5)
    rack.pass_time(2 * RULES.known_s)

    assert rack.cap_w[0] > had_w + 10.0


def test_a_need_is_known_for_a_while_in_its_phase_and_below_it() -> None:
    rack = Rack()
    readings = replace(rack.allocator.tree.table.readings, at_s=np.full(8, 100.0), phase=np.full(8, PHASE_MEMORY_BOUND))
    known = learnt(nothing_known(8), readings, np.full(8, 126.0), np.arange(8) < 2)

    def says(phase: int, at_s: float, cap_w: float) -> list[bool]:
        now = replace(readings, at_s=np.full(8, at_s), phase=np.full(8, phase))
        return is_known(known, now, np.full(8, cap_w), 60.0).tolist()

    assert says(PHASE_MEMORY_BOUND, 150.0, 107.0) == [True] * 2 + [False] * 6
    assert not any(says(PHASE_COMPUTE_BOUND, 150.0, 107.0))
    assert not any(says(PHASE_MEMORY_BOUND, 161.0, 107.0))
    assert not any(says(PHASE_MEMORY_BOUND, 150.0, 125.5))  # it has what it needed, and is held back there
