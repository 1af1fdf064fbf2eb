"""A budget of work: what is spent from a part is spent from the whole, and time that ended something is remembered."""

from placement.budget import Budget


def test_work_is_used_up_before_time_is_asked() -> None:
    budget = Budget(10.0, clock=lambda: 5.0, over_at_s=1.0)

    budget.spend(10.0)

    assert budget.cut_short == "work"
    assert not budget.allows_more()
    assert not budget.time_ran_out


def test_time_that_is_up_ends_what_has_work_left_and_is_remembered() -> None:
    budget = Budget(10.0, clock=lambda: 5.0, over_at_s=1.0)

    assert not budget.allows_more()
    assert budget.time_ran_out


def test_what_a_part_spends_the_whole_has_spent() -> None:
    whole = Budget(100.0)
    part = whole.part(0.25)

    part.spend(25.0)

    assert (part.work, whole.work) == (0.0, 75.0)
    assert not part.allows_more()
    assert whole.allows_more()


def test_time_that_ends_a_part_has_ended_the_whole() -> None:
    whole = Budget(100.0, clock=lambda: 5.0, over_at_s=1.0)

    whole.part(0.5).allows_more()

    assert whole.time_ran_out


def test_nothing_is_done_for_nothing() -> None:
    """Else a search whose steps cost nothing would never end."""
    budget = Budget(1.0)

    budget.spend(0.0)

    assert not budget.allows_more()
