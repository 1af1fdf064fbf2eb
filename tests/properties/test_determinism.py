"""Whatever the clock does, a plan is the one of a quiet machine, or it says that time cut it short."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, chain, cycle
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from placement.budget import stopped
from tests.builders.arbitrary_fleets import fleets
from tests.builders.mix import profile, service
from tests.builders.snapshot_content import plain

MANY = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
JUMPS_S = st.lists(st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 0.7, 5.0, 1e6]), min_size=1, max_size=12)
PROFILES = (profile("A100", ((3.0, 2.0),)), profile("L4", ((0.9, 0.3),)))


def jumping(steps_s: list[float]) -> Callable[[], float]:
    """A clock that goes on by these steps, over and over."""
    instants = accumulate(chain((0.0,), cycle(steps_s)))
    return lambda: next(instants)


def served(seen: Snapshot, rates: list[float]) -> Snapshot:
    """The fleet with services that share its GPUs."""
    services = tuple(
        service(f"ns/{n}", rate, ((0.4, 0.6),), headroom_share=None, slice_factor=8) for n, rate in enumerate(rates)
    )
    return replace(seen, services=services, profiles=PROFILES)


def without_seconds(plan: Plan) -> Any:
    """The plan but for how long it took, and for what is said of time."""

    def timeless(content: Any) -> Any:
        match content:
            case dict():
                return {key: timeless(value) for key, value in content.items() if key != "seconds"}
            case list():
                return [timeless(value) for value in content]
            case _:
                return content

    certificates = {name: replace(each, seconds=0.0) for name, each in plan.certificates.items()}
    return timeless(plain(replace(plan, certificates=certificates)))


@MANY
@given(
    fleets(),
    st.lists(st.sampled_from([0.5, 3.0, 11.3]), max_size=3),
    JUMPS_S,
    st.sampled_from([1e-4, 0.5, 30.0, 1e9]),
    st.sampled_from([0.01, 0.1, 2.0]),
)
def test_a_clock_that_jumps_changes_no_plan_that_does_not_say_so(
    seen: Snapshot, rates: list[float], steps_s: list[float], deadline_s: float, within_s: float
) -> None:
    decisions = Decisions(within_s=within_s, policy="bestfit")
    asked = served(seen, rates)
    quiet = decide(asked, decisions, deadline_s=1.0, clock=stopped)

    hurried = decide(asked, decisions, deadline_s=deadline_s, clock=jumping(steps_s))

    assert quiet.cut_short == ()
    assert hurried.cut_short or without_seconds(hurried) == without_seconds(quiet)


@MANY
@given(fleets(), st.lists(st.sampled_from([0.5, 3.0, 11.3]), max_size=3))
def test_a_deadline_that_is_over_at_once_still_gives_a_plan_and_says_what_it_lacks(
    seen: Snapshot, rates: list[float]
) -> None:
    asked, decisions = served(seen, rates), Decisions(policy="bestfit")
    quiet = decide(asked, decisions, deadline_s=1.0, clock=stopped)

    plan = decide(asked, decisions, deadline_s=0.0, clock=stopped)

    assert plan.cut_short or without_seconds(plan) == without_seconds(quiet)
    assert {each.service for each in plan.services} == {f"ns/{n}" for n in range(len(rates))}
