"""Quotas of namespaces: the instances of services stay within what their namespace may still hold."""

from dataclasses import replace

from cluster.plans import Reason
from placement.mix.feasibility import is_feasible
from placement.mix.optimizer import answer_mix
from placement.mix.problem import MixQuestion, Need
from placement.stock import Stock
from tests.builders.mix import ample, answered, counts, need, question

QUOTA = "requests.nvidia.com/gpu of ResourceQuota ns/gpus"


def bounded(of: Need, units: int = 1) -> Need:
    return replace(of, offers=tuple(replace(offer, quotas=((QUOTA, units * offer.gpus),)) for offer in of.offers))


def within(asked: MixQuestion, most: int) -> MixQuestion:
    return replace(asked, stock={**asked.stock, QUOTA: Stock(most, gpu_type=QUOTA, is_quota=True)})


OFFERS = {"small": (1.0, [[2.0]]), "large": (5.0, [[8.0]])}
"""Small ones serve more per dollar: 8 requests per second cost 4 dollars on four of them, and 5 on a large one."""


def test_a_quota_bounds_instances_of_all_types_together() -> None:
    free = question(bounded(need(OFFERS, 8.0, [[1.0]], slice_factor=8)))

    assert counts(answered(free), free) == {"small": 4, "large": 0}
    two = within(free, 2)
    assert counts(answered(two), two) == {"small": 0, "large": 1}


def test_a_quota_of_nothing_is_why_a_service_has_no_instance() -> None:
    asked = within(question(bounded(need(OFFERS, 8.0, [[1.0]]))), 0)

    why = answer_mix(asked, ample())

    assert isinstance(why, Reason)
    assert why.code == "InventoryShort"
    assert f"more {QUOTA} (of 0) would suffice" in why.words


def test_services_of_a_namespace_share_its_quota_and_others_have_none() -> None:
    needs = [replace(need(OFFERS, 8.0, [[1.0]], slice_factor=8), service=f"ns/{n}") for n in ("a", "b", "c")]
    both = within(question(bounded(needs[0]), bounded(needs[1]), needs[2]), 5)

    found = answered(both)

    held = sum(sum(counts(found, both, n).values()) for n in (0, 1))
    assert (held, counts(found, both, 2)) == (5, {"small": 4, "large": 0})
    assert is_feasible(both, found.mixes)
    assert not is_feasible(within(both, 4), found.mixes)
