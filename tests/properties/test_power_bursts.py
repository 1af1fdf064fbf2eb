"""Bursts: whatever devices do within their leases and credit, no breaker opens."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st

from cluster.power import BreakerCurve
from power.leases.holder import may_burst
from power.safety.bursts import burst_of, burst_share_s, credit_after, opens_after_s
from power.tree import tree_of
from simulator.power.agents import BreakerHeat
from tests.builders.power import Device, row_of

many = settings(max_examples=max(500, settings.default.max_examples if settings.default else 0))

CURVES = (
    BreakerCurve((1.1, 1.2, 1.4, 2.0), (600.0, 60.0, 20.0, 5.0)),
    BreakerCurve((1.1, 1.5, 2.0), (600.0, 60.0, 10.0)),
    BreakerCurve((1.25, 3.0), (900.0, 4.0), cooling_s=1000.0),
)


@many
@given(
    curve=st.sampled_from(CURVES),
    looks_s=st.sampled_from((0.5, 1.0)),
    devices=st.integers(1, 6),
    crowded=st.floats(0.4, 0.95),
    moods=st.lists(st.tuples(st.sampled_from(("all", "none", "some", "lease")), st.integers(1, 240)), max_size=30),
)
def test_no_draw_that_leases_and_credit_allow_opens_a_cold_breaker(
    curve: BreakerCurve, looks_s: float, devices: int, crowded: float, moods: list[tuple[str, int]]
) -> None:
    """All devices draw in step, which is the worst case. looks_s: interval of the agent's readings, the default and the
    longest that its settings allow.
    """
    budget_w = crowded * devices * 400.0
    table = replace(row_of([Device(f"g{n}", f"n{n}") for n in range(devices)], budget_w), curves=(curve,))
    burst_j = burst_of(tree_of(table), 1.0)
    # Whole watts, as leases are: a sum that rounding lifts over the budget would count as a load that heats.
    lease_w, credit_j = np.full(devices, np.floor(budget_w / devices)), burst_j.copy()
    heat = BreakerHeat(curve, budget_w)
    bursting = np.ones(devices, dtype=bool)

    for mood, looks in moods:
        for look in range(looks):
            bursting = may_burst(credit_j, bursting, burst_j)
            highest_w = np.where(bursting, 400.0, lease_w)
            wants_w = {"all": 400.0, "none": 60.0, "some": 400.0 if look % 4 < 2 else 60.0, "lease": lease_w}[mood]
            draw_w = np.minimum(wants_w, highest_w)
            credit_j = credit_after(credit_j, draw_w, lease_w, burst_j, looks_s, curve.cooling_s)
            heat.read(looks_s, float(draw_w.sum()))
            assert heat.share < 1.0


@many
@given(curve=st.sampled_from(CURVES), over=st.floats(1.0001, 4.0), more=st.floats(1.0001, 3.0))
def test_a_breaker_opens_sooner_at_a_higher_load(curve: BreakerCurve, over: float, more: float) -> None:
    assert opens_after_s(curve, over * more) <= opens_after_s(curve, over)


@many
@given(curve=st.sampled_from(CURVES), over=st.floats(1.01, 2.5), at=st.floats(0.01, 1.0))
def test_a_burst_of_less_than_its_energy_does_not_open_it_at_any_load(
    curve: BreakerCurve, over: float, at: float
) -> None:
    load = 1 + (over - 1) * at
    heat = BreakerHeat(curve, 1.0)

    heat.read(0.98 * burst_share_s(curve, over) / (load - 1), load)

    assert heat.share <= 1.0


def test_below_a_limit_of_which_nothing_is_known_no_burst_is_allowed() -> None:
    table = row_of([Device("g", "n")], 300.0)
    unknown = replace(table, domains=replace(table.domains, curve=np.full(2, -1)))

    assert burst_of(tree_of(table), 1.0)[0] > 0
    assert burst_of(tree_of(unknown), 1.0)[0] == 0
