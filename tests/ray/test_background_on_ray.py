"""Background deciders on Ray: one that fails, stalls or dies costs one proposal, never a plan or its memory."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from benchmarks.brain import DECISIONS, embedded
from cluster.actions import Move
from cluster.snapshot import Snapshot
from controller.brain.background_frames import Idea, thought_from_frame
from controller.brain.frames import plan_from_frame, snapshot_frame
from controller.brain.on_ray.background_pool import SlotCrew
from controller.brain.on_ray.join import EMBEDDED, joined
from controller.brain.on_ray.planner_pool import Crew
from controller.deciders.background import THINK_S
from controller.deciders.decisions import Decisions
from placement.moves.defragmentation import MovePrice
from tests.builders.fleet import node, pod, world
from tests.unit.controller.deciders.fake_background import DIES, FAILS, STALLS, Counting, snapshot_that
from tests.until import until

T = TypeVar("T")

WITHIN_S = 120.0
"""A busy machine is not a failure."""


class Bench:
    def __init__(self, crew: Crew, slots: SlotCrew) -> None:
        self.crew, self.slots = crew, slots

    def plans(self, does: str = "") -> float:
        """Plan over a snapshot, which the slot then thinks about; how long that took."""
        began_s = time.monotonic()
        assert plan_from_frame(self.crew.plan(snapshot_frame(snapshot_that(does)), WITHIN_S))
        return time.monotonic() - began_s

    def hears(self) -> Idea:
        """The next that comes out of the slot."""
        idea = self.until(lambda: next(iter(self.slots.turn(self.crew.holder.newest)), None), "the slot has an idea")
        assert idea is not None
        return idea

    def is_up(self) -> None:
        self.until(lambda: self.slots.turn(None) or self.slots.up, "the slot is up")

    def is_asked(self) -> None:
        (post,) = self.slots.watched.each
        self.until(lambda: self.slots.turn(self.crew.holder.newest) or post.task is not None, "the slot is asked")

    def until(self, claim: Callable[[], T], what: str) -> T:
        """As `until`, with the planners looked after between two checks."""

        def checked() -> T:
            if not (found := claim()):
                self.crew.look_after()
            return found

        return until(checked, what, WITHIN_S)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with joined(EMBEDDED, cores=2) as ray:
        crew, slots = Crew(ray, Decisions(), time.monotonic), SlotCrew(ray, [Counting()], time.monotonic)
        crew.begin(1, WITHIN_S)
        slots.begin()
        made = Bench(crew, slots)
        made.is_up()
        yield made


def thought(idea: Idea) -> bytes:
    assert idea.frame, f"{idea.reason}: {idea.words}"
    return thought_from_frame(idea.frame).memory


def test_whatever_becomes_of_an_occupant_plans_come_and_what_it_knew_is_kept(bench: Bench) -> None:
    bench.plans()
    known = int(thought(bench.hears()))

    bench.plans(FAILS)
    assert bench.hears().reason == "error"
    bench.plans()
    assert int(thought(bench.hears())) == known + 1

    bench.plans(DIES)
    assert bench.hears().reason == "lost"
    assert bench.plans() < THINK_S
    assert int(thought(bench.hears())) == known + 2

    bench.plans(STALLS)
    bench.is_asked()
    assert bench.plans() < THINK_S
    assert bench.hears().reason == "stuck"
    bench.plans()
    assert int(thought(bench.hears())) == known + 3


def test_an_occupant_that_is_killed_while_it_rests_is_back_by_itself(bench: Bench) -> None:
    bench.plans()
    known = int(thought(bench.hears()))
    (pid,) = bench.slots.processes

    os.kill(pid, signal.SIGKILL)
    bench.until(lambda: bench.slots.turn(None) or bench.slots.processes not in ((), (pid,)), "the occupant is back")
    bench.plans()

    assert int(thought(bench.hears())) == known + 1


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
