"""Assumed binds: they hold their devices until the watch shows them, and never those of another pod."""

import pytest

from cluster.actions import Bind, Evict
from controller.kube.cluster_view import SeenPod
from controller.kube_world.reservations import ASSUMED_FOR_S, AssumedWrites

BIND = Bind("ns/p", "a", (0,))
WAITING = SeenPod("ns/p", "uid-1", "1", "", "tonnage")


def held(seen: SeenPod | None, now_s: float = 101.0) -> tuple[Bind, ...]:
    assumed = AssumedWrites()
    assumed.add(BIND.pod, BIND, "uid-1", 100.0)
    return assumed.unconfirmed({"ns/p": seen}.get, now_s)


def test_a_bind_that_was_sent_counts_until_the_watch_shows_it() -> None:
    assert held(WAITING) == (BIND,)
    assert held(SeenPod("ns/p", "uid-1", "2", "a", "tonnage")) == ()


@pytest.mark.parametrize(
    "seen",
    [None, SeenPod("ns/p", "uid-2", "1", "", "tonnage"), SeenPod("ns/p", "uid-1", "2", "", "tonnage", is_ending=True)],
    ids=["gone", "another of the same name", "ending"],
)
def test_a_bind_of_a_pod_that_is_gone_or_was_replaced_holds_nothing(seen: SeenPod | None) -> None:
    assert held(seen) == ()


def test_a_bind_that_is_never_confirmed_counts_as_failed() -> None:
    assert held(WAITING, 100.0 + ASSUMED_FOR_S - 0.1) == (BIND,)
    assert held(WAITING, 100.0 + ASSUMED_FOR_S) == ()


def test_a_bind_that_was_dropped_is_not_assumed() -> None:
    assumed = AssumedWrites()
    assumed.add(BIND.pod, BIND, "uid-1", 100.0)
    assumed.drop(["ns/p"])

    assert assumed.unconfirmed({"ns/p": WAITING}.get, 100.0) == ()


def test_a_pod_that_is_stopped_before_its_start_is_shown_keeps_its_devices_until_it_is_gone() -> None:
    assumed, stop = AssumedWrites(), Evict("ns/p", "a")
    assumed.add(BIND.pod, BIND, "uid-1", 100.0)
    assumed.add(stop.pod, stop, "uid-1", 101.0)

    assert set(assumed.unconfirmed({"ns/p": WAITING}.get, 102.0)) == {BIND, stop}
    assert assumed.unconfirmed({"ns/p": None}.get, 102.0) == ()
