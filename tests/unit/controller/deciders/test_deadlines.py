"""Since when something stands is data, and lateness follows from it alone."""

from controller.deciders.closing import late, since


def test_what_stands_from_now_on_has_its_whole_time_and_what_is_over_is_forgotten() -> None:
    known = since(["a", "b"], {"a": 10.0, "gone": 1.0}, 50.0)

    assert known == {"a": 10.0, "b": 50.0}
    assert late(["a", "b"], known, at_s=69.9, after_s=60.0) == []
    assert late(["a", "b"], known, at_s=70.0, after_s=60.0) == ["a"]
    assert late(["a", "b"], known, at_s=110.0, after_s=60.0) == ["a", "b"]


def test_what_is_not_known_stands_since_now() -> None:
    assert late(["a"], {}, at_s=1e9, after_s=60.0) == []


def test_an_instant_of_a_clock_that_is_ahead_counts_as_now() -> None:
    assert since(["a"], {"a": 1000.0}, 50.0) == {"a": 50.0}
