"""Occupancy: what may be placed where, while actions are counted one by one."""

import pytest

from cluster.occupancy import Occupancy
from cluster.snapshot import PENDING
from tests.builders.fleet import daemon_pods, node, world


@pytest.mark.parametrize(("target", "code"), [("a", None), ("b", "NotEligible")])
def test_a_pod_pinned_to_its_node_may_restart_there_and_nowhere_else(target: str, code: str | None) -> None:
    seats = Occupancy(world([node("a"), node("b")], daemon_pods(["a"])))
    seats.put(0, PENDING, 0)

    why = seats.objection_to_bind("daemon-a", target, ())

    assert (why.code if why else None) == code


def test_a_pinned_pod_does_not_restart_on_its_node_while_that_is_cordoned() -> None:
    seats = Occupancy(world([node("a", schedulable=False)], daemon_pods(["a"])))
    seats.put(0, PENDING, 0)

    why = seats.objection_to_bind("daemon-a", "a", ())

    assert why is not None
    assert why.code == "NotEligible"
