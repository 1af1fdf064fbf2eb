import numpy as np
import pytest

from simulator.scaling.rival_rules import Fixed, Hpa, oracle_replicas
from tests.builders.scalers import NOW_S, scaler


def test_hpa_aims_at_seventy_percent_and_leaves_a_tenth_alone() -> None:
    assert Hpa()(scaler(10, load=7.6), NOW_S).replicas == 10  # 7.6 / 7.0 is 8.6 % off
    assert Hpa()(scaler(10, load=7.8), NOW_S).replicas == 12  # 7.8 / 0.7 = 11.1
    assert Hpa()(scaler(10, load=4.2), NOW_S).replicas == 6


def test_hpa_scales_down_to_the_highest_recommendation_of_five_minutes() -> None:
    recommended = ((NOW_S - 400.0, 9), (NOW_S - 200.0, 8), (NOW_S - 60.0, 6))
    assert Hpa()(scaler(10, load=2.1, recommended=recommended), NOW_S).replicas == 8


def test_hpa_reaches_sixteen_times_its_size_in_a_minute_of_four_syncs() -> None:
    assert Hpa()(scaler(8, load=700.0), NOW_S).replicas == 128
    assert Hpa(step_s=15.0)(scaler(8, load=700.0), NOW_S).replicas == 16


def test_without_a_forecast_or_a_load_peers_change_nothing() -> None:
    blind = scaler(5, forecast=None, load=None)
    for peer in (Hpa(), Fixed(5)):
        assert peer(blind, NOW_S).replicas == 5


def test_the_oracle_wants_what_the_lead_time_will_need_and_nothing_else() -> None:
    assert oracle_replicas(np.array([1.0, 1.0, 1.0, 5.2, 1.0]), 2).tolist() == [1, 6, 6, 6, 1]


@pytest.mark.parametrize("lead", [0, 1, 5])
def test_the_oracle_misses_nothing_and_one_fewer_at_any_step_would(lead: int) -> None:
    load = np.random.default_rng(lead).uniform(0, 9, 40)
    wanted = oracle_replicas(load, lead)

    def served(replicas: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> bool:
        padded = np.concatenate([np.full(lead, replicas[0]), replicas])
        ready = np.array([padded[step : step + lead + 1].min() for step in range(len(load))])
        return bool((ready >= load).all())

    assert served(wanted)
    for step in range(lead, len(load)):
        fewer = wanted.copy()
        fewer[step] -= 1
        assert not served(fewer)
