"""Comparison of power policies on one row, the search for headroom, and the reports of both."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cli.main import tonnage
from cluster.errors import ConfigError
from simulator.power.agents import faults_from
from simulator.power.machine import DGX_A100
from simulator.power.policies import Readings
from simulator.power.requests import RateCurve, made_up_rates, read_rates
from simulator.power.study import POLICIES, Study, check_study, extra_of, find_headroom, label_of, planned_budget, play
from simulator.power.tonnage_policy import TonnagePower
from simulator.sweep.runner import PolicyRun
from tests.builders.power_pools import pools_of

SMALL = Study(days=1, base_servers=8)


def run(*words: str) -> Result:
    return CliRunner().invoke(tonnage, list(words))


def test_made_up_rates_have_the_statistics_that_they_claim() -> None:
    share = made_up_rates().share
    assert share.max() / share.mean() == pytest.approx(2.98, rel=0.15)
    assert np.percentile(share, 99) / share.mean() == pytest.approx(2.08, rel=0.2)


@pytest.mark.data
def test_the_public_rates_are_read_as_published(public_data: Path) -> None:
    curve = read_rates(public_data / "power" / "servegen_rate_language_m-large.csv.gz")
    assert (len(curve.share), curve.bucket_s) == (2016, 600.0)
    assert 1 / curve.share.mean() == pytest.approx(2.977, rel=1e-3)


def test_stretches_of_high_rates_come_with_a_bucket_on_both_sides() -> None:
    curve = RateCurve("two hills", 600.0, np.array([0.1, 0.2, 0.7, 0.3, 0.1, 0.1, 1.0, 0.9]))

    assert curve.above(0.7).share.tolist() == [0.2, 0.7, 0.3, 0.1, 1.0, 0.9]


def test_rates_with_gaps_are_refused_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("t_s,req_per_s\n0,5\n600,\n1200,-1\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_rates(path)
    assert ["line 3" in str(m) or "line 4" in str(m) for m in caught.value.mistakes] == [True, True]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.325, 1.5])
def test_a_label_says_exactly_how_many_more_servers(share: float) -> None:
    assert extra_of(label_of(share)) == pytest.approx(share)


def test_the_row_as_planned_peaks_at_its_share_of_the_budget() -> None:
    budget_w = planned_budget(SMALL, 1)
    compared = play(PolicyRun(label_of(0.0), "no-cap", 1), SMALL)
    assert compared.outcome.peak_w / budget_w == pytest.approx(0.79)


def test_without_limits_nobody_is_slower_and_nothing_is_held() -> None:
    compared = play(PolicyRun(label_of(0.0), "no-cap", 1), SMALL)
    assert all(compared.slower_pct(name, p) == 0.0 for name in ("low", "high") for p in (50, 99))
    assert compared.outcome.of_pool("low").held_share == 0.0


def test_a_run_is_repeatable() -> None:
    one, two = (play(PolicyRun(label_of(0.4), "polca", 1), SMALL).outcome for _ in range(2))
    assert np.array_equal(one.row_w, two.row_w)
    assert one.pools == two.pools


def test_readings_come_at_once_in_band_and_as_late_as_those_of_meters_out_of_band() -> None:
    assert {policy: SMALL.telemetry_of(policy) for policy in ("polca", "tonnage")} == {"polca": 2.0, "tonnage": 0.0}
    assert {replace(SMALL, telemetry_s=4.0).telemetry_of(policy) for policy in POLICIES} == {4.0}


@pytest.mark.slow
def test_the_allocator_counts_on_readings_that_come_late() -> None:
    soon, late = (
        play(PolicyRun(label_of(0.4), "tonnage", 1), replace(SMALL, above_share=0.8, telemetry_s=telemetry_s)).outcome
        for telemetry_s in (0.0, 6.0)
    )
    assert late.of_pool("low").held_share > soon.of_pool("low").held_share


def test_every_mistake_of_a_study_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        check_study(Study(rates=Path("/nowhere.csv"), base_servers=8, row=Path("/nor-here.yaml")), ("polka",))
    assert len(caught.value.mistakes) == 3
    with pytest.raises(ConfigError) as caught:
        check_study(Study(telemetry_s=0.2, lengths=Path("/nowhere.csv")), ("polka",), option="--policies")
    assert [each.place for each in caught.value.mistakes] == ["--policies polka", "--telemetry", "--lengths"]


def test_faults_are_read_and_slips_are_named() -> None:
    (lying, killed) = faults_from("lying:0.5@10-20,killed", 100.0)
    assert (lying.kind, lying.share, lying.from_s, lying.to_s) == ("lying", 0.5, 10.0, 20.0)
    assert (killed.from_s, killed.to_s) == (25.0, 100.0)
    with pytest.raises(ConfigError) as caught:
        faults_from("gremlins,lying:2,killed@9-3", 100.0)
    assert len(caught.value.mistakes) == 3


@pytest.mark.slow
def test_headroom_lies_between_what_is_safe_and_what_is_not() -> None:
    found = find_headroom(SMALL, "no-cap", [1], most_extra_share=2.0)
    unsafe = [probe.servers for probe in found.probes if probe.broken]
    assert found.safe + 1 in unsafe
    assert all(probe.servers <= found.safe for probe in found.probes if not probe.broken)
    assert found.margin_w > 0
    assert "brake" in found.limited_by
    assert found.guaranteed == int(found.budget_w // DGX_A100.floor_w)


@pytest.mark.slow
def test_where_the_row_as_planned_is_not_safe_headroom_says_so_and_why() -> None:
    study = replace(SMALL, budget_w=20_000.0)
    found = find_headroom(study, "no-cap", [1], most_extra_share=0.5)
    assert (found.safe, found.more) == (None, None)
    assert found.probes[-1].servers == study.base_servers
    assert found.limited_by == "; ".join(found.probes[-1].broken)
    assert found.margin_w < 0

    command = ("power", "headroom", "--days", "1", "--servers", "8", "--seeds", "1", "--budget-w", "20000")
    done = run(*command, "--policy", "no-cap", "--most", "0.5", "-o", "json", "--jobs", "1")
    assert done.exit_code == 1, done.stderr
    assert json.loads(done.stdout)["safe_servers"] is None


def test_out_of_band_no_server_may_burst() -> None:
    made = [TonnagePower(pools_of((4, 4)), 40_000.0, delay_s, 0.0) for delay_s in (2.0, 40.0)]
    now = Readings(
        at_s=np.full(8, 2.0),
        server_w=np.full(8, DGX_A100.idle_w),
        meter_at_s=2.0,
        row_w=8 * DGX_A100.idle_w,
        cap_w=np.full(8, np.inf),
        phase=np.zeros(8, dtype=np.int64),
        sequence=np.full(8, -1),
    )
    in_band, out_of_band = (policy.step(2.0, now) for policy in made)
    assert in_band is not None
    assert in_band.burst_j is not None
    assert (in_band.burst_j > 0).all()
    assert out_of_band is not None
    assert out_of_band.burst_j is not None
    assert (out_of_band.burst_j == 0).all()


def test_simulate_power_prints_json_of_every_run_and_writes_a_report(tmp_path: Path) -> None:
    page = tmp_path / "power.html"
    common = ("simulate", "power", "--days", "1", "--servers", "8", "--seeds", "1", "--jobs", "1")
    done = run(*common, "--policies", "no-cap,polca", "-o", "json", "--report", str(page))
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert [one["policy"] for one in record["runs"]] == ["no-cap", "polca"]
    assert record["simulated"] is True
    html = page.read_text(encoding="utf-8")
    assert "simulated" in html
    assert html.count("<svg role") == 2


@pytest.mark.slow
def test_power_headroom_answers_in_a_sentence() -> None:
    done = run(
        "power", "headroom", "--days", "1", "--servers", "8", "--seeds", "1", "--policy", "polca", "--most", "0.5"
    )
    assert done.exit_code == 0, done.stderr
    assert "more servers are safe on a row planned for 8" in done.stdout
    assert "(simulated)" in done.stdout


def test_wrong_use_is_told_before_time_is_spent() -> None:
    done = run("simulate", "power", "--policies", "magic", "--extra", "much")
    assert done.exit_code == 2
    assert "magic" in done.stderr
    assert all(name in done.stderr for name in POLICIES)
