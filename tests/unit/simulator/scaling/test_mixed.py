"""A service on several GPU types: what is billed, what counts as served, and what the rivals want."""

import numpy as np
import pytest

from autoscaler.forecast.grid import LEVELS, lead_steps
from cluster.demand import Forecast
from cluster.errors import ConfigError
from cluster.workloads import GpuType
from simulator.scaling.replay import LoadScenario
from simulator.scaling.rival_rules import Fixed
from tests.builders.mix import profile, service
from tests.rigs.scaling.mixed_fleet import PRECISION, MixCapacity, MixedService, MixRun, account_of, fleet_of
from tests.rigs.scaling.mixed_policies import (
    Units,
    fixed_run,
    foresight,
    hpa,
    operator_run,
    run_of,
    single_type,
    static_mix,
)

NAN = float("nan")


def fleet(small: int | None = 10, large: int | None = 10) -> MixedService:
    """SMALL serves 1 request/s for 6 $/h, LARGE 3 requests/s for 12 $/h; without headroom."""
    types = [GpuType("SMALL", 0, 6.0, inventory=small), GpuType("LARGE", 0, 12.0, inventory=large)]
    return fleet_of(service(), types, [profile("SMALL", ((1.0,),)), profile("LARGE", ((3.0,),))])


def minutes(*rates: float) -> LoadScenario:
    """Requests per second, minute by minute, after one trained minute of 3."""
    return LoadScenario("test", 60.0, 0.0, np.array(rates), np.array([3.0]), 1.0)


def test_instances_are_billed_while_wanted_and_serve_while_ready() -> None:
    """Three minutes: 2 SMALL for 0.20 $, then with an ordered LARGE twice 0.40 $. The second minute offers 5 requests/s
    to the 2 SMALL, which serve 2; the third one offers 4 to the three instances, which would serve 5."""
    run = MixRun(np.array([[2, 0], [2, 1], [2, 1]]), np.array([[2, 0], [2, 0], [2, 1]]))

    found = account_of(minutes(2, 5, 4), run, MixCapacity(fleet()))

    assert found.dollars == pytest.approx(1.0)
    assert found.requests == pytest.approx(60 * 11)
    assert found.in_slo == pytest.approx(60 * 8, rel=PRECISION)
    assert found.missed_fraction == pytest.approx(3 / 11, abs=PRECISION)
    assert found.per_million == pytest.approx(1e6 / 480, rel=PRECISION)
    assert found.violation_minutes == 1
    assert found.changes_per_day == found.starts_per_day == pytest.approx(1 / (3 / 1440))


def test_requests_that_were_not_observed_are_billed_for_but_neither_served_nor_missed() -> None:
    found = account_of(minutes(2, NAN, 2), fixed_run(minutes(2, NAN, 2), (1, 0)), MixCapacity(fleet()))
    assert (found.dollars, found.requests) == (pytest.approx(0.3), pytest.approx(240))
    assert found.in_slo == pytest.approx(120, rel=PRECISION)


def test_a_request_counts_only_with_the_headroom_that_the_service_keeps() -> None:
    half = fleet_of(service(headroom_share=0.5), [GpuType("SMALL", 0, 6.0)], [profile("SMALL", ((1.0,),))])
    assert MixCapacity(half).highest((4,)) == pytest.approx(2.0, rel=PRECISION)
    assert MixCapacity(half, raw=True).highest((4,)) == pytest.approx(4.0, rel=PRECISION)


def test_no_instance_serves_nothing() -> None:
    assert MixCapacity(fleet()).served((0, 0), 1.0) == pytest.approx(0.0, abs=PRECISION)


def test_the_one_type_is_the_cheapest_that_serves_the_peak_and_may_exceed_the_stock() -> None:
    name, units = single_type(fleet(large=1), 9.0)
    assert (name, units.load, units.counts(7)) == ("LARGE", pytest.approx(3.0), (0, 7))


def test_a_static_mix_is_scaled_as_a_whole_within_the_stock() -> None:
    units = static_mix(fleet(large=2), 8.0)
    assert (units.whole, units.whole_units) == ((2, 2), 4)
    assert units.load == pytest.approx(2.0, rel=PRECISION)
    assert [units.counts(number) for number in (1, 2, 3, 8)] == [(1, 1), (1, 1), (2, 2), (4, 2)]


def test_an_ordered_unit_is_ready_after_the_lead_time() -> None:
    units = Units(3.0, (0, 1), 1, (0, 100))
    run = run_of(minutes(3, 3, 3, 3), units, Fixed(4), 120.0)
    assert run.wanted.tolist() == [[0, 4]] * 4
    assert run.ready.tolist() == [[0, 2], [0, 2], [0, 4], [0, 4]]


def test_foresight_costs_the_cheapest_mix_for_the_highest_rate_within_the_lead_time() -> None:
    """3 requests/s need a LARGE; 5.9 need two, from one minute before."""
    found = foresight(minutes(2.9, 2.9, 5.9, 2.9), fleet(), 60.0)
    assert found.dollars == pytest.approx((12 + 24 + 24 + 12) / 60)
    assert found.missed_fraction == 0


def test_a_foreseen_load_is_ordered_before_it_comes() -> None:
    """3 requests/s for five minutes, then 9: with a lead of 2 minutes the capacity for 9 is ready at its first one."""
    seen = minutes(*[3.0] * 5, *[9.0] * 5)
    ahead = lead_steps(60.0)

    def foreseen(step: int) -> Forecast:
        load = seen.demand[np.minimum(step + ahead, 9)]
        return Forecast(60.0 * step, 60.0 * ahead, LEVELS, np.repeat(load[:, None], len(LEVELS), 1))

    run = operator_run(seen, fleet(), foreseen, 120.0)
    found = [MixCapacity(fleet()).served(tuple(row), 9.0) for row in run.ready.tolist()]
    assert found[5:] == [9.0] * 5


def test_no_policy_without_a_miss_costs_less_than_foresight() -> None:
    seen = minutes(*np.random.default_rng(3).uniform(1, 12, 40))
    bound = foresight(seen, fleet(), 60.0)
    found = account_of(seen, fixed_run(seen, fleet().counts(12.0)), MixCapacity(fleet()))
    assert found.missed_fraction == 0
    assert bound.dollars <= found.dollars


def test_a_rate_beyond_the_stock_is_refused() -> None:
    with pytest.raises(ConfigError, match="requests/s"):
        fleet(small=1, large=1).counts(100.0)


def test_the_operator_follows_the_load_with_its_own_deciders() -> None:
    """Without a forecast it aims at 70 %: 2 requests/s take a LARGE, 8 take 12 requests/s of capacity."""
    seen = minutes(2, 2, 8, 8, 8, 8)
    run = operator_run(seen, fleet(), lambda _: None, 120.0)
    capacity = MixCapacity(fleet())
    assert capacity.highest(tuple(run.wanted[1].tolist())) == pytest.approx(3.0, rel=PRECISION)
    assert capacity.highest(tuple(run.wanted[2].tolist())) == pytest.approx(12.0, rel=PRECISION)
    assert run.ready[3].tolist() == run.wanted[1].tolist()
    assert run.ready[4].tolist() == run.wanted[2].tolist()


def test_the_hpa_aims_at_seventy_percent_of_a_unit() -> None:
    run = run_of(minutes(*[21.0] * 3), Units(3.0, (0, 1), 1, (0, 100)), hpa(minutes(21.0)), 60.0)
    assert run.wanted[-1].tolist() == [0, 10]


def test_where_the_stock_lacks_the_margin_the_operator_orders_what_it_holds() -> None:
    """The stock serves 5 requests/s. At a load of 4.5 the operator wants 6 at least, and gets all of the stock."""
    run = operator_run(minutes(1, 4.5, 4.5), fleet(small=2, large=1), lambda _: None, 60.0)
    assert run.wanted[1].tolist() == [2, 1]
