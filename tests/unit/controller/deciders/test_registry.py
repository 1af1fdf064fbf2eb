"""The order of deciding: one for every brain, walked by planners where it takes long."""

import pytest

from controller.deciders.decider import BackgroundDecider, Decider
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import ORDER, SECTIONS, Stage, proposers_of, sections_of


def test_every_decider_stands_in_the_order_once() -> None:
    names = [entry.name for entry in ORDER]

    assert len(set(names)) == len(names)
    assert [entry.name for entry in SECTIONS.opening] + [
        decider.name for stage in SECTIONS.stages for decider in stage.deciders
    ] + [entry.name for entry in SECTIONS.closing] == names


def test_what_edits_the_plan_stands_behind_all_that_add_to_it() -> None:
    scopes = [entry.scope for entry in ORDER]

    assert "plan" not in scopes[: scopes.index("plan")]
    assert set(scopes[scopes.index("plan") :]) == {"plan"}


def test_deciders_of_one_scope_that_follow_each_other_are_one_stage() -> None:
    one, two, three = (entry for entry in ORDER if entry.name in ("replicas", "packing", "moves"))
    assert isinstance(one, Decider)
    assert isinstance(two, Decider)
    assert isinstance(three, Decider)

    assert sections_of((one, two, three)).stages == (Stage("cluster", (one,)), Stage("share", (two, three)))


def test_a_background_decider_between_those_of_planners_is_refused() -> None:
    """Planners may be on Ray: the plan would travel there and back twice."""
    decider = {entry.name: entry for entry in ORDER}
    polish, replicas, packing = decider["polish"], decider["replicas"], decider["packing"]

    with pytest.raises(ValueError, match="move it before or after"):
        sections_of((replicas, polish, packing))
    assert sections_of((polish, replicas, packing)).opening == (polish,)
    assert sections_of((replicas, packing, polish)).closing == (polish,)


def test_a_proposer_has_the_name_of_its_decider() -> None:
    """By that name the plan finds its proposal."""
    names = [entry.name for entry in ORDER if isinstance(entry, BackgroundDecider)]

    assert [each.name for each in proposers_of(Decisions(polish_share=0.5, fit_slots=8))] == names
    assert proposers_of(Decisions()) == ()
