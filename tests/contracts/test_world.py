"""What every World promises. A new world joins by one line in `WORLDS`."""

from collections.abc import Callable

import pytest

from cluster.actions import Action, Bind, Evict, Move, Scale
from cluster.errors import ActionError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.world import Outcome, World
from simulator.world import SimulatedWorld
from tests.builders import node, pod, world
from tests.mixes import profile, service

WORLDS: dict[str, Callable[[Snapshot], World]] = {"simulated": SimulatedWorld}


@pytest.fixture(params=WORLDS)
def start(request: pytest.FixtureRequest) -> Callable[[Snapshot], World]:
    return WORLDS[request.param]


def small() -> Snapshot:
    return world(
        [node("a", gpus=2), node("b", gpus=1), node("closed", gpus=8, schedulable=False)],
        [pod("runs", gpus=1, on="a", devices=(0,)), pod("waits", gpus=1), pod("wide", gpus=2)],
        services=[service("ns/chat")],
        profiles=[profile("A100", [[1.0]])],
    )


def seats(seen: Snapshot) -> dict[str, tuple[int, int]]:
    columns = zip(seen.pods.names, seen.pods.node.tolist(), seen.pods.devices.tolist(), strict=True)
    return {name: (where, devices) for name, where, devices in columns}


def test_what_was_built_is_what_is_observed(start: Callable[[Snapshot], World]) -> None:
    assert seats(start(small()).observe()) == seats(small())


@pytest.mark.parametrize(
    "action",
    [Bind("waits", "a", (1,)), Bind("waits", "b", (0,)), Evict("runs", "a"), Move("runs", "a", "b", (0,))],
    ids=str,
)
def test_an_action_that_was_applied_is_observed(start: Callable[[Snapshot], World], action: Action) -> None:
    pretend = start(small())

    assert list(pretend.apply([action])) == [None]

    assert seats(pretend.observe()) == seats(small().after([action]))


def test_scaling_brings_pending_instances_and_takes_them_away(start: Callable[[Snapshot], World]) -> None:
    pretend = start(small())

    pretend.apply([Scale("ns/chat", {"A100": 2})])
    grown = pretend.observe()
    pretend.apply([Scale("ns/chat", {"A100": 0})])

    assert sum(owner == "ns/chat" for owner in grown.pods.owner) == 2
    assert seats(pretend.observe()) == seats(small())


@pytest.mark.parametrize(
    "action",
    [
        Bind("ghost", "a", (1,)),
        Bind("waits", "ghost", (0,)),
        Bind("runs", "b", (0,)),
        Bind("waits", "a", (0,)),
        Bind("waits", "closed", (0,)),
        Bind("wide", "b", (0, 1)),
        Bind("wide", "a", (1,)),
        Evict("waits", "a"),
        Evict("runs", "b"),
        Move("runs", "b", "a", (1,)),
        Scale("ns/ghost", {"A100": 1}),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_nothing_changes(start: Callable[[Snapshot], World], action: Action) -> None:
    pretend = start(small())

    (answer,) = pretend.apply([action])

    assert isinstance(answer, ActionError)

    assert seats(pretend.observe()) == seats(small())


def test_actions_that_go_together_are_answered_one_by_one_and_in_order(start: Callable[[Snapshot], World]) -> None:
    pretend = start(small())

    answers = pretend.apply([Bind("waits", "b", (0,)), Bind("ghost", "a", (1,)), Evict("runs", "a")])

    assert [answer is None for answer in answers] == [True, False, True]
    assert seats(pretend.observe())["waits"] == (1, 1)


def test_a_report_of_nothing_is_taken(start: Callable[[Snapshot], World]) -> None:
    start(small()).report(Plan(), Outcome())
