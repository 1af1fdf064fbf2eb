"""Idle devices keep power until others need it, and work gets it."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import FloatArray
from cluster.power import PHASE_IDLE, PHASE_MEMORY_BOUND
from power.control.state import Grants, allocator_of, first_state
from power.control.step import step
from power.rules import PowerRules
from tests.builders.power import Device, row_of

RULES = PowerRules(stuck_s=0.0)
TOKENS_W, IDLE_W, LOWEST_W, FLOOR_W = 260.0, 60.0, 100.0, 150.0
NEED_W = TOKENS_W * (1 + RULES.margin_share)


class World:
    """Eight devices that obey at once, and pass their leases for six seconds at most; every two seconds a step."""

    def __init__(self, budget_w: float, rules: PowerRules = RULES) -> None:
        table = row_of([Device(f"g{n}", f"n{n}", floor_w=FLOOR_W) for n in range(8)], budget_w)
        self.allocator = allocator_of(table, rules)
        self.state = first_state(self.allocator)
        self.budget_w, self.now_s = np.array([budget_w]), 0.0
        self.cap_w: FloatArray = np.full(8, 400.0)
        self.heard = self.state.ledger.sequence
        self.passed: FloatArray = np.zeros(8)
        self.granted: list[tuple[float, Grants]] = []

    def pass_time(self, seconds: int, work: tuple[int, ...], phase: int = PHASE_MEMORY_BOUND, **wrong: float) -> None:
        """Those in `work` draw like token generation; `wrong` replaces what the first one reports."""
        working = np.isin(np.arange(8), work)
        for _ in range(0, seconds, 2):
            self.passed = np.where(working & (self.cap_w < TOKENS_W), self.passed + 2.0, 0.0)
            tokens_w = np.where(self.passed <= 6.0, TOKENS_W, np.minimum(TOKENS_W, self.cap_w))
            draw_w, at_s = np.where(working, tokens_w, IDLE_W), np.full(8, self.now_s)
            draw_w[0], at_s[0] = wrong.get("draw_w", draw_w[0]), at_s[0] - wrong.get("age_s", 0.0)
            seen = replace(
                self.allocator.tree.table.readings,
                at_s=at_s,
                draw_w=draw_w,
                cap_w=self.cap_w,
                sequence=self.heard,
                phase=np.where(working, phase, PHASE_IDLE),
            )
            self.state, grants = step(self.allocator, self.state, seen, self.now_s, self.budget_w)
            self.granted += [(self.now_s, grants)] if grants.changed.any() else []
            self.cap_w, self.heard = grants.cap_w, grants.sequence
            self.now_s += 2.0


def calm(rules: PowerRules = RULES) -> World:
    """2 of 8 active under 1,600 W: they draw 880 W, 55 %. Their needs and the lowest limits of the others fit."""
    world = World(1600.0, rules)
    world.pass_time(200, (0, 1))
    return world


def test_an_idle_device_keeps_its_watts_until_others_need_them() -> None:
    world = calm()
    world.pass_time(40, (1,))

    assert world.cap_w[0] >= TOKENS_W  # no device needs them

    world.budget_w = world.budget_w - 200.0
    world.pass_time(40, (1, 2))
    assert world.cap_w[0] <= 1.15 * LOWEST_W  # 2 x 273 W and 6 x 100 W are all of 1,400 W, less what is kept in reserve
    assert (world.cap_w[1:3] >= NEED_W - 1).all()


def test_who_works_again_gets_what_it_needs_in_steps_of_a_trial_while_a_burst_carries_it() -> None:
    world = calm()
    world.pass_time(60, (1, 2, 3, 4))  # 4 x 273 W and 4 x 100 W are more than 1,600 W less the reserve
    assert world.cap_w[0] <= 1.15 * LOWEST_W
    world.pass_time(60, (1,))
    world.granted.clear()

    world.pass_time(20, (0, 1))

    raised = [(now_s, grants.cap_w[0]) for now_s, grants in world.granted if grants.changed[0]]
    assert len(raised) == 3
    assert raised[-1][0] - raised[0][0] == 4.0
    assert raised[-1][1] == pytest.approx(NEED_W, abs=0.06 * 400.0)
