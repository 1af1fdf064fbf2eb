"""Bounds of a namespace: what counts, in which order, and whom they concern."""

from typing import Any

import pytest

from cluster.snapshot import Snapshot
from cluster.workloads import Gang, Toleration
from controller.snapshot.namespace_bounds import EXCEEDED, NamespaceBounds
from tests.builders.fleet import node, pod, world


def picky(name: str, constraints: int, **more: Any) -> Any:
    """Pod with so many tolerations of its own."""
    return pod(name, tolerations=tuple(Toleration(f"{name}-{n}") for n in range(constraints)), **more)


def left_out(snapshot: Snapshot, **bounds: int) -> list[str]:
    after = NamespaceBounds(**bounds).applied(snapshot)
    assert {each.code for each in after.left_out} <= {EXCEEDED}
    assert sorted([*after.pods.names, *(each.pod for each in after.left_out)]) == list(snapshot.pods.names)
    return [each.pod for each in after.left_out]


def test_pods_past_what_their_namespace_may_ask_for_wait_and_others_do_not() -> None:
    """Each asks for 10: three fit into 30, by priority and then by name."""
    ours = [picky(f"ns/p{n}", 10, priority=int(n == 4)) for n in range(5)]
    snapshot = world([node("a")], [*ours, picky("other/p", 25)])

    assert left_out(snapshot, most_constraints=30) == ["ns/p2", "ns/p3"]


def test_what_fits_beside_what_does_not_has_its_turn() -> None:
    snapshot = world([node("a")], [picky("ns/a", 10), picky("ns/b", 90), picky("ns/c", 10)])

    assert left_out(snapshot, most_constraints=30) == ["ns/b"]


def test_shapes_are_counted_once_however_many_pods_have_them() -> None:
    alike = [pod(f"ns/a{n}", cpu_milli=9) for n in range(3)]
    snapshot = world([node("a")], [*alike, *(pod(f"ns/b{n}", cpu_milli=n) for n in range(4))])

    # All of ns/a* are one shape; with those of ns/b* they are five.
    assert left_out(snapshot, most_shapes=5) == []
    assert left_out(snapshot, most_shapes=4) == ["ns/b3"]


def test_requirements_and_their_values_count() -> None:
    """Three labels with a value each are six."""
    labels = {"a": "1", "b": "2", "c": "3"}
    snapshot = world([node("a")], [pod("ns/a"), pod("ns/b", selector=labels)])

    assert (left_out(snapshot, most_constraints=6), left_out(snapshot, most_constraints=5)) == ([], ["ns/b"])


def test_a_gang_is_left_out_whole() -> None:
    members = [picky(f"ns/g{n}", 10, gang="ns/g") for n in range(3)]
    snapshot = world([node("a")], [*members, picky("ns/x", 10)], gangs=[Gang("ns/g", 3)])

    assert left_out(snapshot, most_constraints=25) == ["ns/g0", "ns/g1", "ns/g2"]


@pytest.mark.parametrize("where", [None, "a"])
def test_pods_that_run_count_nothing(where: str | None) -> None:
    on = {"on": where} if where else {}
    snapshot = world([node("a")], [picky("ns/a", 40, **on), picky("ns/b", 9)])

    assert left_out(snapshot, most_constraints=20) == ([] if where else ["ns/a"])


def test_without_too_many_nothing_changes() -> None:
    snapshot = world([node("a")], [picky("ns/a", 9)])

    assert NamespaceBounds().applied(snapshot) is snapshot
