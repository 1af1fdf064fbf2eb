"""The brain on an embedded Ray: it plans what inline plans, and comes back when parts of it are killed."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from controller.brain.inline import InlineBrain
from controller.brain.launcher import ChildBrain
from controller.brain.remote import RayBrain
from tests import until as waiting
from tests.builders.random_clusters import random_cluster
from tests.chaos.nodes import parents
from tests.ray.brains import DECISIONS, embedded, plans_alike

LONG_S = 60.0
SHORT_S = 2.0

until = partial(waiting.until, within_s=120.0)
"""A busy machine is not a failure."""


@pytest.fixture(scope="module")
def brain() -> Iterator[RayBrain]:
    with embedded(DECISIONS, planners=1) as made:
        yield made


def plans_on_ray(brain: RayBrain) -> bool:
    before = brain.counts.plans["ray"]
    brain.plan(random_cluster(1), SHORT_S)
    return brain.counts.plans["ray"] > before


def child(brain: RayBrain) -> int:
    peer = brain.link.peer
    assert isinstance(peer, ChildBrain)
    assert peer.process is not None
    return peer.process.pid


def test_the_same_snapshot_and_seed_make_the_same_plan_inline_and_on_ray(brain: RayBrain) -> None:
    inline = InlineBrain(DECISIONS, time.monotonic)
    before = brain.counts.plans["ray"]

    for seed in range(20):  # all 200 in the slow test below
        seen = random_cluster(seed)
        assert plans_alike(brain.plan(seen, LONG_S), inline.plan(seen, LONG_S)), f"seed {seed}"

    assert brain.counts.plans["ray"] - before == 20


@pytest.mark.slow
@pytest.mark.parametrize("shares", [1, 4])
def test_two_planners_plan_two_hundred_clusters_as_inline_does_divided_or_not(shares: int) -> None:
    decisions = replace(DECISIONS, shares=shares)
    inline = InlineBrain(decisions, time.monotonic)
    with embedded(decisions, planners=2) as made:
        for seed in range(1 if shares > 1 else 0, 200, 2):  # the odd ones are divided
            seen = random_cluster(seed)
            assert plans_alike(inline.plan(seen, LONG_S), made.plan(seen, LONG_S)), f"seed {seed}"
        assert not made.counts.fallbacks


def test_a_planner_that_is_killed_is_back_without_a_new_brain(brain: RayBrain) -> None:
    until(lambda: plans_on_ray(brain), "Ray plans")
    driver, (planner,) = child(brain), brain.standing.planner_processes

    os.kill(planner, signal.SIGKILL)
    began_s = time.monotonic()
    brain.plan(random_cluster(1), SHORT_S)

    assert time.monotonic() - began_s < SHORT_S + 1.0
    until(lambda: brain.standing.planner_processes not in ((), (planner,)), "another planner has come")
    until(lambda: plans_on_ray(brain), "Ray plans again")
    assert child(brain) == driver


def test_a_brain_process_that_is_killed_leaves_nothing_behind_and_comes_back(brain: RayBrain) -> None:
    until(lambda: plans_on_ray(brain), "Ray plans")
    driver, starts = child(brain), brain.standing.starts
    peer = brain.link.peer
    assert isinstance(peer, ChildBrain)
    folder, of_ray = Path(peer.folder), [pid for pid, parent in parents().items() if parent == driver]

    os.kill(driver, signal.SIGKILL)
    began_s = time.monotonic()
    brain.plan(random_cluster(1), SHORT_S)

    assert time.monotonic() - began_s < SHORT_S + 1.0
    until(lambda: brain.standing.starts > starts and not folder.exists(), "its folder is gone")
    until(lambda: not set(of_ray) & parents().keys(), "its processes are gone")
    until(lambda: plans_on_ray(brain), "Ray plans again")


def test_planners_that_divide_the_work_plan_as_one_does() -> None:
    decisions = replace(DECISIONS, shares=4)
    inline = InlineBrain(decisions, time.monotonic)
    with embedded(decisions, planners=2) as brain:
        for seed in range(10):
            seen = random_cluster(seed)
            assert plans_alike(brain.plan(seen, LONG_S), inline.plan(seen, LONG_S)), f"seed {seed}"
        assert brain.counts.plans["ray"] == 10
