from dataclasses import replace

import numpy as np
import pytest

from autoscaler.forecast.fits import Fit
from autoscaler.series import regular
from cluster.autoscaling import LoadHistory
from cluster.frame import FrameError, framed
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.brain.frames import plan_frame, plan_from_frame, snapshot_frame, snapshot_from_frame
from controller.deciders.decisions import Decisions
from controller.deciders.load_fits import FIT_S, MOST_SLOTS, LoadFits, ShardFits, fitted, load_fits_of, slot_of
from controller.deciders.pipeline import proposers_of
from simulator.scaling.traces import generated_trace
from tests.builders.fleet import world


def history(name: str, days: int = 2, *, boosted: bool = False) -> LoadHistory:
    step_s = 60.0 if boosted else 600.0  # trees need thousands of points
    series = regular(0.0, step_s, generated_trace(len(name), days=days, step_s=step_s).values)
    return LoadHistory(name, series.start_s, series.step_s, series.values, series.is_censored, boosted=boosted)


def snapshot_with(*histories: LoadHistory) -> Snapshot:
    return replace(world([]), load_histories=histories)


ALONE = LoadFits(slot=0, slots=1)


def fits_of(plan: Plan) -> dict[str, Fit | None]:
    (shard,) = plan.fits
    assert isinstance(shard, ShardFits)
    return dict(shard.by_scaler())


def test_a_slot_fits_each_history_that_is_offered() -> None:
    proposal = ALONE.propose(snapshot_with(history("d/a", 4), history("d/bb", 4)), b"", 60.0)
    assert {name: fit is not None for name, fit in fits_of(proposal.plan).items()} == {"d/a": True, "d/bb": True}


def test_a_history_that_is_too_short_is_answered_without_a_fit() -> None:
    short = replace(history("d/a"), values=history("d/a").values[:10], is_censored=np.zeros(10, dtype=np.bool_))
    assert ShardFits.of(fitted([short])).by_scaler() == {"d/a": None}


def test_the_same_offer_is_fitted_once() -> None:
    first = ALONE.propose(snapshot_with(history("d/a", 4)), b"", 60.0)
    again = ALONE.propose(snapshot_with(history("d/a", 4)), first.memory, 60.0)
    assert again.plan.fits == ()
    assert again.memory == first.memory


def test_slots_share_the_histories_without_overlap() -> None:
    names = [f"d/s{n}" for n in range(50)]
    assert {slot_of(name, 4) for name in names} == {0, 1, 2, 3}
    offered = snapshot_with(*(history(name, 4) for name in names[:6]))
    found = [set(fits_of(LoadFits(slot, 2).propose(offered, b"", 60.0).plan)) for slot in range(2)]
    assert sorted(name for each in found for name in each) == sorted(names[:6])


def test_the_deadline_sets_how_many_are_fitted() -> None:
    offered = snapshot_with(history("d/a", 4), history("d/b", 4))
    assert set(fits_of(ALONE.propose(offered, b"", 1.5 * FIT_S).plan)) == {"d/a"}
    assert ALONE.propose(offered, b"", 0.2).plan.fits == ()


def test_fits_are_the_same_after_the_way_to_another_process_and_back() -> None:
    offered = snapshot_from_frame(snapshot_frame(snapshot_with(history("d/a", 7, boosted=True))))
    plan = plan_from_frame(plan_frame(ALONE.propose(offered, b"", 60.0).plan))
    here, there = fitted([history("d/a", 7, boosted=True)]), fits_of(plan)
    assert framed(ShardFits.of(there)) == framed(ShardFits.of(here))
    fit = there["d/a"]
    assert fit is not None
    assert fit.boosted is not None


def test_fits_of_a_shard_share_their_trees() -> None:
    pair = [history("d/a", 7, boosted=True), history("d/bb", 7, boosted=True)]
    alone, both = len(framed(ShardFits.of(fitted(pair[:1])))), len(framed(ShardFits.of(fitted(pair))))
    assert both < 1.8 * alone


def test_a_plan_adopts_what_was_learned_and_nothing_else() -> None:
    proposal = ALONE.propose(snapshot_with(history("d/a", 4)), b"", 60.0)
    adopted = ALONE.adopt(world([]), proposal.plan)
    assert adopted.fits == proposal.plan.fits
    assert adopted.actions == ()


def test_bytes_that_are_no_fits_are_refused() -> None:
    frame = plan_frame(ALONE.propose(snapshot_with(history("d/a", 4)), b"", 60.0).plan)
    with pytest.raises(FrameError):
        plan_from_frame(frame.replace(b"fitted_at_s", b"fitted_at_x"))


def test_there_are_as_many_slots_as_the_settings_ask_for() -> None:
    assert [load_fits_of(slot, Decisions(fit_slots=2)) is not None for slot in range(3)] == [True, True, False]
    names = [each.name for each in proposers_of(Decisions(fit_slots=MOST_SLOTS))]
    assert names == [f"load_fits_{slot}" for slot in range(MOST_SLOTS)]
