"""Advice on a fleet: each with its dollars, worked out in the comments."""

import pytest

from cluster.snapshot import Snapshot
from controller.brain.from_settings import decisions_from, inline_brain
from controller.queries.advice import Advice, advise
from controller.queries.usage import of_types
from controller.settings import settings_from
from tests.builders.fleet import node, pod, world


def advice_on(now: Snapshot) -> dict[str, Advice]:
    """Advice by topic."""
    brain = inline_brain(decisions_from(settings_from({"policy": "bestfit"})))
    found = advise(now, of_types(now), lambda seen: brain.plan(seen, 60.0))
    return {each.topic: each for each in found.advice}


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
    """One pod each on a type of its own: nothing may be put together."""
    nodes = [node("a", gpus=2, gpu_type="A100"), node("b", gpus=2, gpu_type="T4")]
    pods = [pod(name, gpus=1, on=on, devices=(0,), movable=True) for name, on in (("p", "a"), ("q", "b"))]
    found = advice_on(world(nodes, pods, prices={"A100": 4.0, "T4": 1.0}))

    assert "fragmentation" not in found
    # p names no type and holds $4 where a device at $1 is idle
    assert found["types"].dollars_per_hour == pytest.approx(3.0)
    assert found["types"].about[0].endswith("p")


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
    brain = inline_brain(decisions_from(settings_from({"policy": "bestfit"})))
    return [each.headline for each in advise(now, of_types(now), lambda seen: brain.plan(seen, 60.0)).advice]
