"""Advice is judged as verdicts are: on clusters with planted waste, and things that only look like it."""

import pytest

from tests.builders.planted_waste import PLANTS, Planted, advised, judged, planted

SEEDS = range(7000, 7012)


def test_advice_finds_what_is_planted_and_nothing_else() -> None:
    """Of 40 clusters 0.95 of what is found shall be there, and 0.9 of what is there be found, in dollars."""
    found = [judged(seed) for seed in SEEDS]
    right = sum(each.right_usd for each in found)

    assert right >= 0.95 * sum(each.found_usd for each in found), [each.missed for each in found]
    assert right >= 0.90 * sum(each.truth_usd for each in found), [each.missed for each in found]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_advice_alone_saves_what_it_says_and_breaks_nothing(seed: int) -> None:
    assert judged(seed).wrong == ()


def test_there_are_plants_of_ten_kinds_and_more() -> None:
    assert len({topic for seed in range(40) for _, topic in planted(seed).truth}) >= 10
    assert len(PLANTS) >= 20


def test_a_gang_that_runs_is_never_moved_apart() -> None:
    """Two members of four devices on two nodes would fit on one; they restart together."""
    made = Planted(planted(1).chance)
    made.begin("train")
    made.gang("g", 2)
    for n in range(2):
        made.pod(f"m{n}", 4, made.node(f"n{n}"), gang="g")
    made.objects += [each for each in planted(1).objects if each["kind"] == "GPUType"]

    _, report = advised(made)

    assert [each.topic for each in report.advice if each.changes] == []
