"""Status of a Gang: how many members run, and what the others wait for."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.plans import Plan, Reason, Unplaced
from cluster.workloads import Gang, MemberGroup
from controller.api.conditions import DEGRADED, PLANNED, READY
from controller.report.own_statuses import GangFacts, facts_of_gangs, gang_status_after
from tests.builders.fleet import node, pod, world

NOON_S = 1_772_366_400.0


def status(facts: GangFacts, before: dict[str, Any] | None = None, *, at_s: float = NOON_S) -> dict[str, Any]:
    return gang_status_after(before or {}, "train", facts, generation=2, at_s=at_s)


def said(facts: GangFacts) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status(facts)["conditions"]}


@pytest.mark.parametrize(
    ("facts", "planned", "ready", "degraded"),
    [
        (GangFacts(4, 3), ("False", "MembersMissing"), ("False", "TooFewRun"), ("False", "AsAsked")),
        (GangFacts(4, 4), ("False", "NotPlaced"), ("False", "TooFewRun"), ("False", "AsAsked")),
        (GangFacts(4, 4, placed=4), ("True", "Placed"), ("False", "TooFewRun"), ("False", "AsAsked")),
        (GangFacts(4, 4, placed=4, running=3), ("True", "Placed"), ("False", "TooFewRun"), ("True", "WaitsForMembers")),
        (GangFacts(4, 5, placed=5, running=4), ("True", "Placed"), ("True", "EnoughRun"), ("False", "AsAsked")),
    ],
)
def test_a_gang_is_planned_when_enough_have_places_and_ready_when_enough_run(
    facts: GangFacts, planned: tuple[str, str], ready: tuple[str, str], degraded: tuple[str, str]
) -> None:
    assert said(facts) == {PLANNED: planned, READY: ready, DEGRADED: degraded}


def test_a_gang_that_was_held_back_says_why() -> None:
    why = Reason("GangHeldBack", "4 members must start together and do not all fit")

    (planned, *_) = status(GangFacts(4, 4, held_back=why))["conditions"]

    assert (planned["reason"], planned["message"]) == (why.code, why.words)


def test_a_gang_that_stands_as_before_is_told_as_before() -> None:
    before = status(GangFacts(2, 2, placed=2, running=2))

    assert status(GangFacts(2, 2, placed=2, running=2), before, at_s=NOON_S + 60) == before


def test_a_status_that_somebody_else_broke_is_made_anew() -> None:
    assert status(GangFacts(1), {"members": "many"}) == status(GangFacts(1))


def test_members_are_found_by_their_label() -> None:
    assert status(GangFacts(1))["selector"] == "tonnage.dev/gang=train"


def test_how_gangs_stand_is_counted_from_the_cluster_after_the_plan() -> None:
    seen = world(
        [node("n1", gpus=8)],
        [
            pod("ns/a0", 1, on="n1", devices=(0,), gang="ns/a"),
            pod("ns/a1", 1, on="n1", devices=(1,), gang="ns/a"),
            pod("ns/a2", 1, gang="ns/a"),
            pod("ns/b0", 1, gang="ns/b"),
            pod("ns/other", 1),
        ],
        [Gang("ns/a", 2), Gang("ns/b", 1), Gang("ns/c", 1)],
    )
    why = Reason("GangHeldBack", "no room")

    facts = facts_of_gangs(seen, Plan(unplaced=(Unplaced("Gang/ns/b", why),)), lambda name: name == "ns/a0")

    assert facts == {
        "ns/a": GangFacts(needed=2, members=3, placed=2, running=1),
        "ns/b": GangFacts(needed=1, members=1, held_back=why),
        "ns/c": GangFacts(needed=1),
    }


def test_a_status_says_since_when_its_gang_stands_half_started_and_no_longer_than_that() -> None:
    half = status(GangFacts(3, 3, placed=2, half_started_since_s=NOON_S + 0.7))

    assert half["halfStartedSince"] == "2026-03-01T12:00:00Z"
    assert status(GangFacts(3, 3, placed=2, half_started_since_s=NOON_S), half, at_s=NOON_S + 9) == half
    assert "halfStartedSince" not in status(GangFacts(3, 3, placed=3), half)


def test_since_when_a_gang_stands_half_started_comes_from_the_snapshot() -> None:
    seen = replace(world([node("n", gpus=1)], [], [Gang("ns/a", 2)]), half_started_since_s={"ns/a": 5.0})

    assert facts_of_gangs(seen, Plan(), lambda _: False)["ns/a"].half_started_since_s == 5.0


def test_a_status_says_since_when_its_gang_runs_until_no_member_has_a_node() -> None:
    """By it a gang that lost a member is told from one that never ran whole."""
    started = status(GangFacts(2, 2, placed=2, running=2))
    lost = status(GangFacts(2, 2, placed=1), started, at_s=NOON_S + 60)
    stopped = status(GangFacts(2, 2), lost, at_s=NOON_S + 120)

    assert started["wholeSince"] == lost["wholeSince"] == "2026-03-01T12:00:00Z"
    assert "wholeSince" not in stopped
    assert "wholeSince" not in status(GangFacts(2, 2, placed=2, running=1)), "a bind on its way may still fail"


def test_a_gang_that_goes_on_with_fewer_says_how_many_it_lacks() -> None:
    gang = Gang("ns/train", 1, asked_members=2)
    there = world([node("a", gpus=2)], [pod("p", 1, on="a", devices=(0,), gang="ns/train")], gangs=[gang])

    assert facts_of_gangs(there, Plan(), lambda _: True)["ns/train"].needed == 2


def test_a_gang_names_the_roles_that_are_missing_and_is_not_ready_without_them() -> None:
    """Four actors run, as many as must start together with the trainer that does not exist."""
    actors = tuple(f"ns/a{n}" for n in range(5))
    wanted = Gang("ns/g", 5, groups=(MemberGroup("actors", 4, actors), MemberGroup("trainer", 1)))
    seen = world([node("n1", gpus=8)], [pod(name, 1, on="n1", gang="ns/g") for name in actors], [wanted])

    facts = facts_of_gangs(seen, Plan(), lambda _: True)["ns/g"]

    assert said(facts) == {
        PLANNED: ("False", "MembersMissing"),
        READY: ("False", "TooFewRun"),
        DEGRADED: ("True", "WaitsForMembers"),
    }
    assert {each["message"] for each in status(facts)["conditions"]} == {
        "5 of 5 members exist; missing: 1 of trainer",
        "5 of 5 members run; missing: 1 of trainer",
        "5 members run and wait for 1 of trainer",
    }
    assert "wholeSince" not in status(facts)
