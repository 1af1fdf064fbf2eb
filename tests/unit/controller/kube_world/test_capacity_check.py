"""Last check before a write: nothing is written that the cluster cannot hold at that moment."""

import pytest

from cluster.actions import Action, Bind, Evict, Scale
from cluster.errors import ActionError
from cluster.occupancy import Occupancy
from controller.kube_world.world import HANDLERS
from tests.builders.fleet import node, pod, world
from tests.builders.mix import of_types


def check(seats: Occupancy, action: Action) -> None:
    HANDLERS[type(action)].check(seats, action)


def seats() -> Occupancy:
    return Occupancy(
        world(
            [node("a", gpus=2, cpu_milli=8000), node("closed", gpus=8, schedulable=False)],
            [pod("runs", gpus=1, on="a", devices=(0,)), pod("waits", gpus=1), pod("also", gpus=1), pod("wide", gpus=2)],
        )
    )


def test_a_bind_that_fits_is_let_through() -> None:
    check(seats(), Bind("waits", "a", (1,)))


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (Bind("waits", "a", (0,)), "still held"),
        (Bind("waits", "a", (2,)), "no device 2"),
        (Bind("wide", "a", (1,)), "requests 2 devices"),
        (Bind("runs", "a", (1,)), "already"),
        (Bind("ghost", "a", (1,)), "pod ghost does not exist"),
        (Bind("waits", "ghost", (1,)), "node ghost does not exist"),
        (Bind("waits", "closed", (0,)), "cordoned"),
        (Evict("waits", "a"), "but on no node"),
        (Evict("runs", "closed"), "does not run on closed, but on a"),
        (Evict("ghost", "a"), "pod ghost does not exist"),
        (Scale("ghost", of_types({"A100": 1})), "service ghost does not exist"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_in_words(action: Action, why: str) -> None:
    with pytest.raises(ActionError, match=why):
        check(seats(), action)


def test_what_was_charged_in_this_batch_counts() -> None:
    taken = seats()
    taken.place("waits", "a", (1,))

    with pytest.raises(ActionError, match="device 1 is still held"):
        check(taken, Bind("also", "a", (1,)))


def test_cpu_is_counted_too() -> None:
    seen = world([node("a", cpu_milli=1500)], [pod("first", cpu_milli=1000), pod("second", cpu_milli=1000)])
    taken = Occupancy(seen)
    taken.place("first", "a", ())

    with pytest.raises(ActionError, match="cpu of the node"):
        check(taken, Bind("second", "a"))
