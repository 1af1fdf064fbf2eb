"""The order of deciding, the same everywhere."""

from controller.deciders.decider import PlanEdit
from controller.deciders.pipeline import ORDER


def test_every_decider_stands_in_the_order_once() -> None:
    names = [entry.name for entry in ORDER]

    assert len(set(names)) == len(names)


def test_what_edits_the_plan_stands_behind_all_that_add_to_it() -> None:
    edits = [isinstance(entry, PlanEdit) for entry in ORDER]

    assert edits == sorted(edits)
