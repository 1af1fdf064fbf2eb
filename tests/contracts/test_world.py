"""Contract of every World. A new world joins by one line in `WORLDS` (conftest.py)."""

import pytest

from cluster.actions import Action, Bind, Evict, Move, Scale
from cluster.errors import ActionError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.ports import Outcome
from tests.builders.fleet import node, pod, world
from tests.builders.mix import of_types, profile, service
from tests.contracts.stage import Start


def small() -> Snapshot:
    return world(
        [
            node("a", gpus=2, gpu_type="a100"),
            node("b", gpus=1, gpu_type="a100"),
            node("closed", gpus=8, gpu_type="a100", schedulable=False),
        ],
        [pod("ns/runs", gpus=1, on="a", devices=(0,)), pod("ns/waits", gpus=1), pod("ns/wide", gpus=2)],
        services=[service("ns/chat")],
        profiles=[profile("a100", [[1.0]])],
    )


def seats(seen: Snapshot) -> dict[str, tuple[int, int]]:
    columns = zip(seen.pods.names, seen.pods.node.tolist(), seen.pods.devices.tolist(), strict=True)
    return {name: (where, devices) for name, where, devices in columns}


def test_what_was_built_is_what_is_observed(start: Start) -> None:
    assert seats(start(small()).world.observe()) == seats(small())


@pytest.mark.parametrize(
    "action",
    [
        Bind("ns/waits", "a", (1,)),
        Bind("ns/waits", "b", (0,)),
        Evict("ns/runs", "a"),
        Move("ns/runs", "a", "b", (0,)),
    ],
    ids=str,
)
def test_an_action_that_was_applied_is_observed_and_one_that_was_declined_changes_nothing(
    start: Start, action: Action
) -> None:
    stage = start(small())

    (answer,) = stage.world.apply([action])

    if type(action) in stage.declines:
        assert isinstance(answer, ActionError)
        assert seats(stage.settled()) == seats(small())
    else:
        assert answer is None
        assert seats(stage.settled()) == seats(small().after([action]))


def test_a_bind_is_observed_at_once(start: Start) -> None:
    stage = start(small())

    stage.world.apply([Bind("ns/waits", "b", (0,))])

    assert seats(stage.world.observe())["ns/waits"] == (1, 0b1), "else the next plan would give the device away again"


def test_scaling_brings_pending_instances_and_takes_them_away(start: Start) -> None:
    stage = start(small())

    stage.world.apply([Scale("ns/chat", of_types({"a100": 2}))])
    grown = stage.settled()
    stage.world.apply([Scale("ns/chat", of_types({"a100": 0}))])

    assert sum(owner == "ns/chat" for owner in grown.pods.owner) == 2
    assert seats(stage.settled()) == seats(small())


@pytest.mark.parametrize(
    "action",
    [
        Bind("ns/ghost", "a", (1,)),
        Bind("ns/waits", "ghost", (0,)),
        Bind("ns/runs", "b", (0,)),
        Bind("ns/waits", "a", (0,)),
        Bind("ns/waits", "closed", (0,)),
        Bind("ns/wide", "b", (0, 1)),
        Bind("ns/wide", "a", (1,)),
        Evict("ns/waits", "a"),
        Evict("ns/runs", "b"),
        Move("ns/runs", "b", "a", (1,)),
        Scale("ns/ghost", of_types({"a100": 1})),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_nothing_changes(start: Start, action: Action) -> None:
    stage = start(small())

    (answer,) = stage.world.apply([action])

    assert isinstance(answer, ActionError)
    assert seats(stage.settled()) == seats(small())


def test_actions_that_go_together_are_answered_one_by_one_and_in_order(start: Start) -> None:
    stage = start(small())

    answers = stage.world.apply([Bind("ns/waits", "b", (0,)), Bind("ns/ghost", "a", (1,)), Evict("ns/runs", "a")])

    assert [answer is None for answer in answers] == [True, False, True]
    assert seats(stage.settled())["ns/waits"] == (1, 1)


def test_two_binds_that_go_together_do_not_get_one_device(start: Start) -> None:
    stage = start(small())

    answers = stage.world.apply([Bind("ns/waits", "a", (1,)), Bind("ns/wide", "a", (0, 1))])

    assert [answer is None for answer in answers] == [True, False]
    assert seats(stage.settled()) == seats(small().after([Bind("ns/waits", "a", (1,))]))


def test_a_report_of_nothing_is_taken(start: Start) -> None:
    start(small()).world.report(Plan(), Outcome())
