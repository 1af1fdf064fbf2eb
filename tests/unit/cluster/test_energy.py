"""Work that waits is answered in the cheapest hours before its deadline, all of it, and never faster than it may be."""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import numpy as np
from hypothesis import given, settings, strategies as st

from cluster.arrays import FloatArray
from cluster.demand import DeferredWork
from cluster.workloads import MixObjective, PowerPrice, price_at
from tests.builders.day_ahead import BELGIUM

HOUR_S = 3600.0


def by_hour(prices: tuple[float, ...]) -> Callable[[FloatArray], FloatArray]:
    """Prices at instants."""
    return lambda at_s: np.array(prices)[(at_s // HOUR_S).astype(int) % len(prices)]


def followed(work: DeferredWork, prices: tuple[float, ...], begin_s: float, step_s: float) -> tuple[float, float]:
    """Cost and requests of a work that is asked for its rate at every step until it is done, in a day more at most."""

    price = by_hour(prices)
    changes_s = [hour * HOUR_S for hour in range(len(prices))]
    at_s, cost = begin_s, 0.0
    while at_s < work.deadline_s + 24 * HOUR_S and work.done < work.requests - 1e-6:
        rate = work.rate_at(at_s, changes_s, price)
        assert 0 <= rate <= work.most_per_s * (1 + 1e-9)
        cost += rate * step_s * float(price(np.array([at_s]))[0])
        work, at_s = replace(work, done=min(work.requests, work.done + rate * step_s)), at_s + step_s
    return cost, work.done


def test_the_cheapest_hours_are_filled_first_and_the_last_one_in_part() -> None:
    work = DeferredWork(requests=5400, deadline_s=3 * HOUR_S, most_per_s=1.0)
    prices = (3.0, 1.0, 2.0)

    rates = [work.rate_at(hour * HOUR_S, [HOUR_S, 2 * HOUR_S], by_hour(prices)) for hour in (0, 1)]

    assert rates == [0.0, 1.0]
    later = replace(work, done=3600.0)
    assert later.rate_at(2 * HOUR_S, [HOUR_S], by_hour(prices)) == 0.5


def test_before_its_begin_and_when_done_nothing_is_asked_and_after_the_deadline_everything() -> None:
    work = DeferredWork(requests=10, deadline_s=200.0, most_per_s=2.0, begin_s=100.0)

    assert work.rate_at(50.0, [], by_hour((1.0,))) == 0
    assert replace(work, done=10).rate_at(150.0, [], by_hour((1.0,))) == 0
    assert work.rate_at(200.0, [], by_hour((1.0,))) == 2.0


@given(
    prices=st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.5]), min_size=4, max_size=12).map(tuple),
    share=st.floats(0.05, 1.0),
    seconds=st.sampled_from([600.0, 1800.0]),
)
@settings(deadline=None)
def test_all_is_answered_by_the_deadline_at_the_cost_of_the_cheapest_hours(
    prices: tuple[float, ...], share: float, seconds: float
) -> None:
    hours = len(prices)
    work = DeferredWork(requests=share * hours * HOUR_S, deadline_s=hours * HOUR_S, most_per_s=1.0)

    cost, done = followed(work, prices, 0.0, seconds)

    # The fewest that any plan can pay: the cheapest hours, filled one after the other.
    left, least = work.requests, 0.0
    for price in sorted(prices):
        least, left = least + price * min(left, HOUR_S), left - min(left, HOUR_S)
    assert done >= work.requests - 1e-3
    assert abs(cost - least) <= 1e-6 * max(1.0, least)


def test_work_that_may_wait_a_day_pays_seven_tenths_for_its_power_on_a_public_market() -> None:
    # Six hours of work that come at each hour of the first six days, and may wait for 24 hours.
    immediate, waited = [], []
    for hour in range(6 * 24):
        begin_s, most = hour * HOUR_S, 1.0
        work = DeferredWork(6 * HOUR_S, begin_s + 24 * HOUR_S, most, begin_s)
        cost, done = followed(work, BELGIUM, begin_s, HOUR_S)
        assert done >= work.requests - 1e-6
        waited.append(cost)
        immediate.append(HOUR_S * sum(BELGIUM[hour + n] for n in range(6)))

    assert fmean(waited) <= 0.7 * fmean(immediate)


def test_a_price_holds_until_the_next_and_the_first_before_it() -> None:
    series = (PowerPrice(100.0, 0.1), PowerPrice(200.0, 0.3))

    assert [price_at(series, at_s).dollars_per_kwh for at_s in (0.0, 100.0, 199.0, 200.0, 900.0)] == [
        0.1, 0.1, 0.1, 0.3, 0.3,
    ]  # fmt: skip
    assert price_at((), 7.0) == PowerPrice(7.0)
    assert MixObjective(kg_co2=0.5).of_energy(PowerPrice(0.0, 0.1, 400.0)) == 0.2
