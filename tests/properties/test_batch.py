"""What holds of every plan for a batch: it may be carried out, gangs are whole, and its bound is true."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cluster.actions import Bind
from cluster.snapshot import Snapshot
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from controller.guard import Limits, guard
from placement.batch.column_generation import most_valuable
from placement.batch.columns import Memory
from placement.batch.ladder import BatchSettings, Rung, plan_batch
from placement.batch.problem import batch_of
from placement.batch.relaxation import ceilings
from placement.engine.packer import Packer
from placement.engine.policy import Knowledge
from placement.packing.planner import pack
from placement.policies import policy_named
from tests.builders.plan_check import wrongs
from tests.properties.batches import batches, cheapest, seats_of, tiny_batches

RUNGS: tuple[Rung, ...] = ("best-fit", "relaxation", "columns")


@pytest.mark.parametrize("rung", RUNGS)
@settings(max_examples=40)
@given(seen=batches())
def test_every_stage_makes_feasible_plans(rung: Rung, seen: Snapshot) -> None:
    plan = plan_batch(seen, Memory(), BatchSettings(), rung=rung)

    assert wrongs(seen, seats_of(plan)) == []
    assert sorted([*plan.seats.row.tolist(), *plan.waiting.tolist()]) == seen.pods.pending.tolist()


@settings(max_examples=60)
@given(tiny_batches())
def test_nothing_is_cheaper_than_what_is_proven(seen: Snapshot) -> None:
    """Against every assignment there is; and what is planned costs what it is said to, never less than the cheapest."""
    for rung in RUNGS:
        plan = plan_batch(seen, Memory(), BatchSettings(), rung=rung)
        best = cheapest(seen, batch_of(seen, among=plan.startable))
        assert plan.bound_usd <= best + 1e-6
        assert plan.usd_per_hour >= best - 1e-6


@settings(max_examples=60)
@given(batches())
def test_a_pod_that_packing_starts_in_free_resources_is_part_of_the_batch(seen: Snapshot) -> None:
    """No pod is ruled out that another planner, which knows nothing of the rules, finds a place for."""
    plan = plan_batch(seen, Memory(), BatchSettings(), rung="best-fit")

    packed = pack(seen, Packer(seen, policy_named("bestfit", Knowledge(seen))), preempt=False)

    started = [action.pod for action in packed.actions if isinstance(action, Bind)]
    assert all(plan.startable[seen.pods.names.row(name)] for name in started)


@settings(max_examples=60)
@given(tiny_batches())
def test_columns_find_the_cheapest_plan_of_tiny_batches_nearly_always(seen: Snapshot) -> None:
    """Never more than one node dearer: rounding may miss one."""
    plan = plan_batch(seen, Memory(), BatchSettings(), rung="columns")
    batch = batch_of(seen, among=plan.startable)

    assert plan.usd_per_hour <= cheapest(seen, batch) + float(batch.node_usd.max()) + 1e-6


@settings(max_examples=30)
@given(batches())
def test_the_same_snapshots_and_memory_make_the_same_plans(seen: Snapshot) -> None:
    first = plan_batch(seen, Memory(), BatchSettings(), rung="columns")
    again = [plan_batch(seen, first.memory, BatchSettings(), rung="columns") for _ in range(2)]

    assert seats_of(again[0]) == seats_of(again[1])
    assert again[0].bound_usd == again[1].bound_usd


@pytest.mark.slow
@settings(max_examples=40)
@given(batches(), batches())
def test_what_is_remembered_of_another_question_proves_nothing_false(before: Snapshot, seen: Snapshot) -> None:
    """A memory of any other cluster changes neither feasibility nor the truth of the bound."""
    memory = plan_batch(before, Memory(), BatchSettings(), rung="columns").memory

    warm = plan_batch(seen, memory, BatchSettings(), rung="columns")

    cold = plan_batch(seen, Memory(), BatchSettings(), rung="columns")
    assert wrongs(seen, seats_of(warm)) == []
    assert warm.bound_usd <= cold.usd_per_hour + 1e-6


@settings(max_examples=40)
@given(batches(), st.booleans())
def test_the_guard_has_nothing_to_strike_from_a_batch(seen: Snapshot, preempt: bool) -> None:
    brain = InlineBrain(Decisions(planner="columns", policy="bestfit", preempt=preempt), clock=lambda: 0.0)

    plan = brain.plan(seen, deadline_s=10.0)

    assert guard(seen, plan, Limits()).refused == ()


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_no_pattern_is_worth_more_than_the_ceiling(seed: int) -> None:
    """Against every pattern of three classes on one node."""
    chance = np.random.default_rng(seed)
    ask = chance.integers(1, 6, (3, 2)).astype(np.float64)
    room = chance.integers(4, 16, 2).astype(np.float64)
    usd = chance.random(3)
    most = np.minimum(np.floor((room / ask).min(axis=1)), 4).astype(np.int64)

    pattern, ceiling = most_valuable(usd, ask, room, most, 0.0, 1e-4)

    patterns = np.stack(np.meshgrid(*(np.arange(m + 1) for m in most), indexing="ij"), axis=-1).reshape(-1, 3)
    best = max(float(p @ usd) for p in patterns if (p @ ask <= room).all())
    assert best <= ceiling + 1e-9
    assert float(pattern @ usd) == pytest.approx(best, rel=1e-3)
    anything = chance.random((1, 2))
    assert best <= ceilings(usd, ask, room[None], most[:, None], anything)[0] + 1e-9


@settings(max_examples=40)
@given(batches())
def test_the_relaxation_is_below_every_plan(seen: Snapshot) -> None:
    hasty = plan_batch(seen, Memory(), BatchSettings(), rung="best-fit")

    assert plan_batch(seen, Memory(), BatchSettings(), rung="relaxation").bound_usd <= hasty.usd_per_hour + 1e-6
