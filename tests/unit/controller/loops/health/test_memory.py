"""Memory of the analysis: what jobs take is known, bounded, and shared between namespaces."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from controller.loops.health.stream import SHARE, WITHOUT_LIMIT_BYTES, analysis_bytes, left_out

JOBS = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 9)).map(lambda each: f"{each[0]}/job-{each[1]}"),
    st.integers(0, 100),
)


def test_the_namespace_that_holds_most_gives_up_its_largest_jobs() -> None:
    held = {"a/large": 50, "b/one": 30, "b/two": 40, "b/three": 20}

    assert left_out(held, 140) == ()
    assert left_out(held, 130) == ("b/two",)
    assert left_out(held, 90) == ("b/two", "b/one")
    assert left_out(held, 60) == ("b/two", "b/one", "a/large")


def test_many_small_jobs_of_one_namespace_displace_no_larger_one_of_another() -> None:
    held = {"team/train": 400, **{f"flood/{number:03}": 5 for number in range(200)}}

    out = left_out(held, 1000)

    assert out
    assert all(job.startswith("flood/") for job in out)


@given(JOBS, st.integers(0, 300))
def test_the_others_fit_and_no_namespace_gives_up_anything_while_it_holds_less_than_its_part(
    held: dict[str, int], most: int
) -> None:
    out = left_out(held, most)

    kept = {job: size for job, size in held.items() if job not in out}
    assert sum(kept.values()) <= most
    namespaces = {job[0] for job in held}
    for job in out:
        before = sum(size for other, size in held.items() if other[0] == job[0])
        assert before * len(namespaces) > most


@pytest.mark.parametrize(("text", "expected"), [("1073741824\n", int(SHARE * 2**30)), ("max\n", WITHOUT_LIMIT_BYTES)])
def test_the_analysis_may_take_a_part_of_the_containers_memory(tmp_path: Path, text: str, expected: int) -> None:
    limit = tmp_path / "memory.max"
    assert analysis_bytes(limit) == WITHOUT_LIMIT_BYTES

    limit.write_text(text)

    assert analysis_bytes(limit) == expected
