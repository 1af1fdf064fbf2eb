"""The mix: what is cheapest, what is proven, and why there is no answer."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.plans import Reason
from cluster.workloads import InstanceType
from placement.mix.feasibility import violations
from placement.mix.optimizer import answer_mix, shortage
from placement.stock import Stock
from tests.builders.mix import WORKED_EXAMPLE, ample, answered, counts, need, nothing, question

SHARE = ((0.2, 0.1), (0.5, 0.2))


def test_the_worked_example_costs_six_dollars_seventy() -> None:
    asked = question(need(WORKED_EXAMPLE, 30, SHARE))

    answer = answered(asked)

    # Rates are 6, 3, 15, 6 requests/s. The large bucket of 15 fills 15/5 = 3 A10G, the others
    # 6/20 + 3/20 + 6/20 = 0.75 A100: 3 × 1.01 + 3.67 = 6.70. All on A100: 0.75 + 15/40 = 1.125, so 2, 7.34.
    assert counts(answer, asked) == {"A10G": 3, "A100": 1}
    assert answer.cost_per_hour == pytest.approx(6.70)
    assert answer.certificate.gap == 0.0
    assert answer.certificate.solver == "HiGHS"


def test_a_bucket_that_no_type_can_serve_is_named_with_its_slo() -> None:
    asked = question(need({"L4": (0.7, ((5, 0),))}, 1, ((0.5, 0.5),)))

    reason = answer_mix(asked, ample())

    assert isinstance(reason, Reason)
    assert reason.code == "BucketUnserved"
    assert "input ≤ 100, output ≤ 100 tokens" in reason.words
    assert "100ms" in reason.words


def test_stock_that_is_short_is_named_with_the_number_that_is_missing() -> None:
    # 10 requests/s at 3 per instance and slices of 10/4 = 2.5: 3.33 instances, so 4; there are 2.
    asked = question(need({"A100": (3.67, ((3,),))}, 10, ((1,),), slice_factor=4), stock={"A100": 2})

    reason = answer_mix(asked, ample())

    assert isinstance(reason, Reason)
    assert reason.code == "InventoryShort"
    assert dict(reason.figures) == {"A100": 2.0}


@pytest.mark.parametrize(("is_exact", "verdict"), [(True, "does not fit: "), (False, "not known, ")])
def test_only_an_exact_stock_proves_that_a_service_does_not_fit(is_exact: bool, verdict: str) -> None:
    stock = {"A100": replace(Stock(2), is_exact=is_exact)}
    asked = replace(question(need({"A100": (3.67, ((3,),))}, 10, ((1,),), slice_factor=4)), stock=stock)

    reason = answer_mix(asked, ample())

    assert isinstance(reason, Reason)
    assert reason.words.startswith(verdict)


def test_a_finite_stock_sends_the_rest_to_the_next_type() -> None:
    # Each type serves 1 request/s; three fit on the cheap type, the fourth must go to the dear one.
    asked = question(
        need({"cheap": (1.0, ((1,),)), "dear": (3.0, ((1,),))}, 4, ((1,),), slice_factor=4), stock={"cheap": 3}
    )

    assert counts(answered(asked), asked) == {"cheap": 3, "dear": 1}


def test_services_that_share_a_stock_are_solved_together() -> None:
    # Both would like the one "good" GPU. The first saves 5 - 1 = 4 with it, the second 2 - 1 = 1.
    first = need({"good": (1.0, ((1,),)), "bad": (5.0, ((1,),))}, 1, ((1,),))
    second = replace(need({"good": (1.0, ((1,),)), "bad": (2.0, ((1,),))}, 1, ((1,),)), service="ns/other")
    asked = question(first, second, stock={"good": 1})

    answer = answered(asked)

    assert counts(answer, asked, 0) == {"good": 1, "bad": 0}
    assert counts(answer, asked, 1) == {"good": 0, "bad": 1}
    assert answer.cost_per_hour == pytest.approx(3.0)


def test_an_instance_of_several_gpus_needs_them_on_one_node() -> None:
    # 16 devices in all, but only one node has 8 free: the second instance has nowhere to be.
    wide = need({"H100": (8.0, ((1,),))}, 2, ((1,),), slice_factor=2)
    wide = replace(wide, offers=(replace(wide.offers[0], instance_type=InstanceType("H100", 8)),))
    scattered = replace(question(wide), stock={"H100": Stock(16, {8: 1})})
    gathered = replace(question(wide), stock={"H100": Stock(16, {8: 2})})

    refused = answer_mix(scattered, ample())

    assert isinstance(refused, Reason)
    assert refused.code == "InventoryShort"
    assert counts(answered(gathered), gathered) == {"H100": 2}


def test_a_fixed_headroom_leaves_that_share_of_every_instance_free() -> None:
    # 1 request/s at 1 per instance fills one; with a quarter kept free it takes 1/0.75 = 1.33, so 2.
    asked = question(need({"A100": (1.0, ((1,),))}, 1, ((1,),), slice_factor=4, headroom_share=0.25))

    assert counts(answered(asked), asked) == {"A100": 2}


def test_without_work_for_the_solver_the_answer_is_still_feasible() -> None:
    asked = question(need(WORKED_EXAMPLE, 30, SHARE))

    answer = answer_mix(asked, nothing())

    # The bound takes instances in fractions: buckets of 6 + 3 + 6 requests/s at 20 per A100 are 0.75 · 3.67 = 2.7525,
    # the one of 15 costs 15/40 · 3.67 = 1.37625 there; 4.12875 in all. All of it on the cheaper type takes two A100.
    assert not isinstance(answer, Reason)
    assert violations(asked, answer.mixes) == ()
    assert answer.cost_per_hour == pytest.approx(7.34)
    assert answer.certificate.bound == pytest.approx(4.12875)


def test_a_question_without_any_demand_costs_nothing() -> None:
    idle = need({"A100": (1.0, ((1,),))}, 0, ((1,),))

    answer = answered(question(idle))

    assert answer.cost_per_hour == 0.0
    assert answer.mixes[0].instances.tolist() == [0]


def test_an_idle_service_does_not_disturb_its_neighbour() -> None:
    idle = need({"A100": (1.0, ((1,),))}, 0, ((1,),))
    busy = replace(need({"A100": (1.0, ((1,),))}, 3, ((1,),), slice_factor=3), service="ns/busy")
    asked = question(idle, busy, stock={"A100": 3})

    answer = answered(asked)

    assert [counts(answer, asked, k) for k in (0, 1)] == [{"A100": 0}, {"A100": 3}]


def test_nothing_is_short_when_the_stock_suffices() -> None:
    asked = question(need({"A100": (1.0, ((1,),))}, 1, ((1,),)), stock={"A100": 1})

    assert dict(shortage(asked, ample()).figures) == {}


def test_slices_that_stay_whole_may_cost_more_than_a_free_split() -> None:
    # One bucket of 3 requests/s in two slices of 1.5: on "small" (1/s, $1) a free split takes 3; slices of 1.5
    # still add up to 3 per type. "tiny stock" makes the difference: with 2 small and 1 big, a free split puts
    # 2.0 on small and 1.0 on big; whole slices put 1.5 on each.
    offers = {"small": (1.0, ((1,),)), "big": (5.0, ((1.2,),))}
    whole = question(need(offers, 3, ((1,),), slice_factor=2), stock={"small": 2})
    free = question(need(offers, 3, ((1,),), slice_factor=None), stock={"small": 2})

    assert counts(answered(free), free) == {"small": 2, "big": 1}
    assert counts(answered(whole), whole) == {"small": 2, "big": 2}  # 1.5 / 1.2 = 1.25 instances


def test_the_check_finds_every_way_to_be_wrong() -> None:
    asked = question(need({"A100": (1.0, ((1,),))}, 2, ((1,),), slice_factor=2), stock={"A100": 2})
    (good,) = answered(asked).mixes

    assert violations(asked, (good,)) == ()
    assert "1 instances on A100 where 2.000" in violations(asked, (replace(good, instances=np.array([1])),))[0]
    assert "3 A100 are used" in violations(asked, (replace(good, instances=np.array([3])),))[0]
    assert "add up to 1" in violations(asked, (replace(good, share=np.array([[0.5]])),))[0]
    two = question(need({"A": (1.0, ((1,),)), "B": (1.0, ((1,),))}, 2, ((1,),), slice_factor=2))
    cut = replace(answered(two).mixes[0], instances=np.array([2, 2]), share=np.array([[0.3, 0.7]]))
    assert violations(two, (cut,)) == ("ns/chat: a slice is split",)
