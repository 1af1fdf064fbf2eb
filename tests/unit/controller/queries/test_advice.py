"""Advice on a fleet: each with its dollars, worked out in the comments."""

from typing import Any

import pytest

from cluster.snapshot import Snapshot
from controller.brain.inline import InlineBrain, decisions_from
from controller.deciders.packing import packer_for
from controller.queries.advice import Advice, AdviceReport, advise
from controller.settings import settings_from
from tests.builders.fleet import node, pod, world
from tests.builders.mix import profile, service

DECISIONS = decisions_from(settings_from({"policy": "bestfit"}))


def report_on(now: Snapshot, **known: Any) -> AdviceReport:
    brain = InlineBrain(DECISIONS)
    return advise(now, lambda seen: brain.plan(seen, 60.0), lambda seen: packer_for(seen, DECISIONS), **known)


def advice_on(now: Snapshot, **known: Any) -> dict[str, Advice]:
    """Advice by topic."""
    return {each.topic: each for each in report_on(now, **known).advice}


def test_a_node_without_a_pod_costs_all_its_devices() -> None:
    """Four devices at $4."""
    found = advice_on(
        world(
            [node("a", gpus=4), node("b", gpus=4)],
            [pod("p", gpus=4, on="a", devices=(0, 1, 2, 3))],
            prices={"A100": 4.0},
        )
    )

    assert found["idle"].dollars_per_hour == pytest.approx(16.0)
    assert found["idle"].about == ("b",)


def test_pods_that_would_fit_on_one_node_free_the_other() -> None:
    """Two pods of one device on two nodes of two at $4: one node, $8, would be free."""
    pods = [pod(f"p{n}", gpus=1, on=f"n{n}", devices=(0,), movable=True) for n in range(2)]
    found = advice_on(world([node(f"n{n}", gpus=2) for n in range(2)], pods, prices={"A100": 4.0}))

    assert found["fragmentation"].dollars_per_hour == pytest.approx(8.0)
    assert len(found["fragmentation"].about) == 1


def test_what_may_not_be_moved_frees_nothing() -> None:
    pods = [pod(f"p{n}", gpus=1, on=f"n{n}", devices=(0,), movable=False) for n in range(2)]

    assert "fragmentation" not in advice_on(world([node(f"n{n}", gpus=2) for n in range(2)], pods))


def test_pods_are_not_moved_to_types_that_they_do_not_name() -> None:
    """One pod each on a type of its own; where p names its own, nothing may be put together."""
    nodes = [node("a", gpus=2, gpu_type="A100"), node("b", gpus=2, gpu_type="T4")]
    pods = [pod(name, gpus=1, on=on, devices=(0,), movable=True) for name, on in (("p", "a"), ("q", "b"))]
    found = advice_on(world(nodes, pods, prices={"A100": 4.0, "T4": 1.0}))
    named = pod("p", gpus=1, on="a", devices=(0,), movable=True, gpu_types=("A100",))
    alone = advice_on(world(nodes, [named], prices={"A100": 4.0, "T4": 1.0}))
    assert "types" not in alone
    assert alone["unwanted"].about == ("b",)

    assert "fragmentation" not in found
    # p names no type, and as much memory is on the device at $1: a's two devices at $4 are free then.
    assert found["types"].dollars_per_hour == pytest.approx(8.0)
    assert found["types"].changes[0].moves[0].pod == "p"


def test_idle_devices_of_a_closed_node_are_counted_apart() -> None:
    nodes = [node("a", gpus=2), node("b", gpus=2, schedulable=False)]
    found = advice_on(world(nodes, [pod("p", gpus=2, on="a", devices=(0, 1))], prices={"A100": 4.0}))

    assert "idle" not in found
    assert found["closed"].dollars_per_hour == pytest.approx(8.0)


def test_waiting_pods_are_told_by_whether_they_have_a_place() -> None:
    pods = [pod("small", gpus=1), pod("wide", gpus=8)]
    report = advise_lines(world([node("a", gpus=2)], pods))

    assert any(line.startswith("1 of 2 waiting pods with GPUs have a place") for line in report)
    assert any(line.startswith("1 of 2 waiting pods with GPUs fit nowhere") for line in report)


def advise_lines(now: Snapshot) -> list[str]:
    return [each.headline for each in report_on(now).advice]


def test_pods_that_their_deployment_makes_anew_count_as_movable() -> None:
    pods = [pod(f"p{n}", gpus=1, on=f"n{n}", devices=(0,), movable=False) for n in range(2)]
    found = advice_on(world([node(f"n{n}", gpus=2) for n in range(2)], pods), replaced=[pods[0].name])

    assert found["fragmentation"].about == ("n0",), "the other pod may not be moved, so its node stays"


def test_a_services_mix_is_set_beside_what_runs_of_it() -> None:
    """One T4 at $1 serves 8 requests a second, the demand is 4; what runs is one A100 at $4: $3 less."""
    nodes = [node("a", gpus=1, gpu_type="A100"), node("b", gpus=1, gpu_type="T4")]
    runs = pod("p", gpus=1, on="a", devices=(0,), owner="ns/chat", gpu_types=("A100",))
    known = {"services": [service(rate=4.0)], "profiles": [profile("A100", ((20.0,),)), profile("T4", ((8.0,),))]}
    prices = {"A100": 4.0, "T4": 1.0}

    found = advice_on(world(nodes, [runs], prices=prices, **known))
    alone = advice_on(world(nodes, prices=prices, **known))

    assert found["services"].dollars_per_hour == pytest.approx(3.0)
    assert "runs on 1 × A100 at $4.00/h, where 1 × T4 at $1.00/h serve its demand" in found["services"].headline
    assert alone["services"].headline == "ModelService ns/chat: 1 × T4 at $1.00/h serve its demand at its SLO"


def test_power_limits_are_added_up_where_they_are_known() -> None:
    """Of two nodes of four devices one has a known product: 4 x 400 W, of which three devices are idle."""
    nodes = [node("a", gpus=4, labels={"product": "X"}), node("b", gpus=4)]
    found = report_on(world(nodes, [pod("p", gpus=1, on="a", devices=(0,))]), limit_w={"X": 400.0})

    assert (found.watts.gpus, found.watts.all_w, found.watts.idle_w) == (4, 1600.0, 1200.0)
