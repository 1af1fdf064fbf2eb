"""Victims keep the place where they run when nothing takes it in the end."""

import numpy as np

from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from placement.engine.packer import Packer
from placement.packing.draft import Draft
from placement.packing.sparing import spare_victims
from placement.policies.best_fit import BestFit
from tests.builders.fleet import node, pod, world


def draft_of(seen: Snapshot) -> Draft:
    return Draft(seen, Packer.of(seen, BestFit()))


def test_a_victim_whose_place_stays_free_is_not_stopped() -> None:
    seen = world([node("a", gpus=1)], [pod("p", 1, on="a", devices=(0,))])
    draft = draft_of(seen)
    draft.unseat(0)

    spare_victims(draft)

    assert draft.changed() == ([], [])


def test_a_victim_that_found_another_place_goes_back_to_its_own_if_that_stays_free() -> None:
    seen = world([node("a", gpus=1), node("b", gpus=1)], [pod("p", 1, on="a", devices=(0,))])
    draft = draft_of(seen)
    draft.unseat(0)
    assert draft.seat(0, np.array([False, True]))

    spare_victims(draft)

    assert draft.changed() == ([], [])


def test_a_victim_whose_place_is_taken_leaves() -> None:
    seen = world([node("a", gpus=1)], [pod("p", 1, on="a", devices=(0,)), pod("q", 1, priority=10)])
    draft = draft_of(seen)
    draft.unseat(0)
    assert draft.seat(1)

    spare_victims(draft)

    assert draft.changed() == ([0], [1])


def test_a_gang_that_cannot_stay_whole_leaves_whole() -> None:
    runs = [pod(f"g{n}", 1, on=on, devices=(0,), gang="g") for n, on in enumerate("ab")]
    seen = world([node("a", gpus=1), node("b", gpus=1)], [*runs, pod("q", 1, priority=10)], [Gang("g", 2)])
    draft = draft_of(seen)
    draft.unseat(0)
    draft.unseat(1)
    assert draft.seat(2)

    spare_victims(draft)

    assert draft.node.tolist()[:2] == [PENDING, PENDING]


def test_a_gang_that_falls_below_its_minimum_restarts_with_the_members_that_keep_their_place() -> None:
    runs = [pod(f"g{n}", 1, on=on, devices=(0,), gang="g") for n, on in enumerate("ab")]
    draft = draft_of(world([node(name, gpus=1) for name in "abc"], runs, [Gang("g", 2)]))
    draft.unseat(0)
    assert draft.seat(0, np.array([False, False, True]))

    assert draft.changed() == ([0, 1], [0, 1])


def test_the_most_important_victim_has_its_place_back_first() -> None:
    runs = [pod(f"p{n}", 1, gpu_milli=600, on="a", devices=(n,), priority=n) for n in range(2)]
    seen = world([node("a", gpus=2)], [*runs, pod("q", 1, priority=10)])
    draft = draft_of(seen)
    draft.unseat(0)
    draft.unseat(1)
    assert draft.seat(2)  # on one device: the best fit among equals is the first

    spare_victims(draft)

    assert draft.changed() == ([0], [2])
