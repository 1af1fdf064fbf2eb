"""Background deciders on Ray: one that fails, stalls or dies costs one proposal, never a plan or its memory."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from cluster.actions import Move
from cluster.snapshot import Snapshot
from controller.brain.frames import SlotOutcome, plan_from_frame, proposal_from_frame, snapshot_frame
from controller.brain.on_ray.process import BackgroundPool, PlannerPool
from controller.brain.on_ray.ray_start import EMBEDDED, joined
from controller.deciders.decider import PROPOSE_S
from controller.deciders.decisions import Decisions
from placement.moves import MovePrice
from tests.builders.fleet import node, pod, world
from tests.ray.brains import DECISIONS, embedded
from tests.unit.controller.deciders.fake_background import DIES, FAILS, STALLS, Counting, snapshot_that
from tests.until import until

T = TypeVar("T")

WITHIN_S = 120.0
"""A busy machine is not a failure."""


class Bench:
    def __init__(self, pool: PlannerPool, slots: BackgroundPool) -> None:
        self.pool, self.slots = pool, slots

    def plans(self, does: str = "") -> float:
        """Plan over a snapshot, which the slot then thinks about; how long that took."""
        began_s = time.monotonic()
        assert plan_from_frame(self.pool.plan(snapshot_frame(snapshot_that(does)), WITHIN_S))
        return time.monotonic() - began_s

    def hears(self) -> SlotOutcome:
        """The next that comes out of the slot."""
        outcome = self.until(
            lambda: next(iter(self.slots.turn(self.pool.holder.newest)), None), "the slot has an outcome"
        )
        assert outcome is not None
        return outcome

    def is_up(self) -> None:
        self.until(lambda: self.slots.turn(None) or self.slots.up, "the slot is up")

    def is_asked(self) -> None:
        (post,) = self.slots.watched.each
        self.until(lambda: self.slots.turn(self.pool.holder.newest) or post.task is not None, "the slot is asked")

    def until(self, claim: Callable[[], T], what: str) -> T:
        """As `until`, with the planners looked after between two checks."""

        def checked() -> T:
            if not (found := claim()):
                self.pool.look_after()
            return found

        return until(checked, what, WITHIN_S)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with joined(EMBEDDED, cores=2) as ray:
        pool, slots = PlannerPool(ray, Decisions(), time.monotonic), BackgroundPool(ray, [Counting()], time.monotonic)
        pool.begin(1, WITHIN_S)
        slots.begin()
        made = Bench(pool, slots)
        made.is_up()
        yield made


def proposal(outcome: SlotOutcome) -> bytes:
    assert outcome.frame, f"{outcome.reason}: {outcome.words}"
    return proposal_from_frame(outcome.frame).memory


def test_plans_continue_and_memory_is_kept_whatever_happens_to_a_background_actor(bench: Bench) -> None:
    bench.plans()
    known = int(proposal(bench.hears()))

    bench.plans(FAILS)
    assert bench.hears().reason == "error"
    bench.plans()
    assert int(proposal(bench.hears())) == known + 1

    bench.plans(DIES)
    assert bench.hears().reason == "lost"
    assert bench.plans() < PROPOSE_S
    assert int(proposal(bench.hears())) == known + 2

    bench.plans(STALLS)
    bench.is_asked()
    assert bench.plans() < PROPOSE_S
    assert bench.hears().reason == "stuck"
    bench.plans()
    assert int(proposal(bench.hears())) == known + 3


def test_a_background_actor_that_is_killed_while_idle_is_restarted_automatically(bench: Bench) -> None:
    bench.plans()
    known = int(proposal(bench.hears()))
    (pid,) = bench.slots.processes

    os.kill(pid, signal.SIGKILL)
    bench.until(lambda: bench.slots.turn(None) or bench.slots.processes not in ((), (pid,)), "the proposer is back")
    bench.plans()

    assert int(proposal(bench.hears())) == known + 1


def test_polish_is_found_on_ray_and_taken_up_by_a_later_plan() -> None:
    free = MovePrice(per_pod_usd=0.0, per_gpu_usd=0.0, stay_h=1.0)
    decisions = replace(DECISIONS, polish_share=1.0, move_price=free)
    with embedded(decisions, planners=1) as brain:

        def moved_by_ray() -> list[str]:
            moved = [each.node for each in brain.plan(halves(), 5.0).actions if isinstance(each, Move)]
            # Until the slot is up, polish is found in this process.
            return moved if brain.background.counts.thoughts["polish", "ray"] else []

        assert until(moved_by_ray, "polish found on Ray moves a pod", WITHIN_S) == ["b"]


def halves() -> Snapshot:
    """Two nodes of 4 $ an hour, half full each: one could run both pods."""
    pods = [pod(name, gpus=2, on=on, devices=(0, 1), movable=True) for name, on in (("p", "a"), ("q", "b"))]
    return world([node("a", gpus=4), node("b", gpus=4)], pods, prices={"A100": 1.0})
