"""What always holds of packing that is kept from plan to plan, on fleets where pods come and go."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cluster.arrays import Names
from cluster.snapshot import PENDING, PodTable, Snapshot
from controller.brain.frames import plan_frame
from controller.brain.inline import InlineBrain
from controller.cycle import carry_out
from controller.deciders.decisions import Decisions
from controller.guard import Limits, guard
from placement.budget import stopped
from simulator.openb.generator import generate, trace_of
from simulator.world import SimulatedWorld
from tests.properties.test_packing import assert_fits

FEW = settings(max_examples=6, deadline=None, derandomize=True)
CYCLES, ARRIVALS = 7, 40
"""Enough arrivals for new prices in the second and the fifth cycle, beside the first ones of the cold start."""
DEADLINE_S = 600.0


def days(seed: int, decisions: Decisions) -> Iterator[tuple[Snapshot, InlineBrain]]:
    """Snapshots of a small fleet that an inline brain packs, while pods arrive and a fifth of them leaves each time."""
    chance = np.random.default_rng(seed)
    trace = trace_of(generate(8, mix="gpuspec33", seed=seed), {})
    world = SimulatedWorld(replace(trace, pods=arrivals(trace.pods, chance, 0)))
    brain = InlineBrain(decisions, stopped)
    for cycle in range(1, CYCLES + 1):
        seen = world.observe()
        yield seen, brain
        carry_out(world, guard(seen, brain.plan(seen, DEADLINE_S), Limits()))
        world.depart(name for name in world.observe().pods.names if chance.random() < 0.2)
        world.arrive(arrivals(trace.pods, chance, cycle))


def arrivals(of: PodTable, chance: np.random.Generator, cycle: int) -> PodTable:
    return PodTable(
        names=Names(f"d/{cycle}-{number}" for number in range(ARRIVALS)),
        shape=chance.integers(0, len(of.shapes), ARRIVALS),
        shapes=of.shapes,
        node=np.full(ARRIVALS, PENDING),
        devices=np.zeros(ARRIVALS, dtype=np.int64),
        priority=np.zeros(ARRIVALS, dtype=np.int64),
        gang=np.full(ARRIVALS, -1),
        owner=("",) * ARRIVALS,
        movable=np.ones(ARRIVALS, dtype=np.bool_),
    )


@pytest.mark.slow
@FEW
@given(st.integers(0, 1000))
def test_two_planners_of_the_same_snapshots_make_the_same_plans_whenever_their_prices_are_ready(seed: int) -> None:
    decisions = Decisions()
    hasty, patient = InlineBrain(decisions, stopped), InlineBrain(decisions, stopped)
    for seen, _ in days(seed, decisions):
        mine = plan_frame(hasty.plan(seen, DEADLINE_S))

        theirs = plan_frame(patient.plan(seen, DEADLINE_S))
        packing = patient.memory.packing  # these prices are ready long before the next plan
        if packing is not None and packing.worker.task is not None:
            packing.worker.task.thread.join()

        assert mine == theirs


@FEW
@given(st.integers(0, 1000))
def test_what_is_kept_never_drifts_from_the_snapshot(seed: int) -> None:
    for seen, brain in days(seed, Decisions()):
        plan = brain.plan(seen, DEADLINE_S)
        again = brain.plan(seen, DEADLINE_S)
        kept = brain.memory.packing
        assert kept is not None
        packer = kept.packer_for(seen, DEADLINE_S)

        free = seen.free()
        assert packer.ledger.cpu_milli.tolist() == free.cpu_milli.tolist()
        assert packer.ledger.gpu_milli.tolist() == free.gpu_milli.tolist()
        assert_fits(seen.after(plan.actions))
        assert_fits(seen.after(again.actions))
