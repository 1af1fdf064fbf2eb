"""Differences in print: the gap stands wherever a mix is not proven cheapest, and nowhere else."""

from dataclasses import replace

from cli.printing.differences import change_lines, plan_lines
from controller.queries.plan_diff import PlanDiff, ServiceChange


def differing(gap: float, *, after: int = 2) -> PlanDiff:
    """A service that goes from two instances to `after`."""
    change = ServiceChange("ns/chat", {"a100": 2}, {"a100": after}, 6.0, 3.0 * after, None, gap=gap)
    return PlanDiff((change,), (), ())


def test_a_change_that_may_not_be_the_cheapest_shows_its_gap() -> None:
    line, _ = plan_lines(differing(0.0333, after=3))

    assert line == "~ ModelService/ns/chat: 2 × a100 → 3 × a100, $6.00 → $9.00 per hour (gap 3.3 %)"


def test_a_service_without_a_template_is_planned_and_not_scaled() -> None:
    (change,) = differing(0.0, after=3).services

    _, why, summary = plan_lines(PlanDiff((replace(change, is_planned_only=True),), (), ()))

    assert why == "    planned only: it has no spec.template, so that its instances are run by other means"
    assert "0 services scaled; 1 planned only; 0 unplaced" in summary


def test_a_service_that_stays_is_named_where_it_may_not_be_the_cheapest() -> None:
    assert "  ModelService/ns/chat is unchanged (gap 3.3 %)" in plan_lines(differing(0.0333))


def test_a_proven_mix_shows_no_gap() -> None:
    assert not any("gap" in line for line in plan_lines(differing(0.0, after=3)))


def test_a_dry_run_shows_the_widest_gap_although_nothing_changes() -> None:
    lines = list(change_lines(differing(0.0333), differing(0.0333)))

    assert lines == ["no change", "services $6.00 → $6.00 per hour in the new plan, ns/chat: gap 3.3 %"]
