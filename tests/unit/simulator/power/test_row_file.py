"""A user's own row: pools of machines and work from a file, and what is wrong in one by field."""

from pathlib import Path

import numpy as np
import pytest

from cluster.errors import ConfigError
from simulator.power.machine import DGX_A100, DGX_B200, MACHINES
from simulator.power.policies import baseline
from simulator.power.requests import RateCurve, ServerPool, draw_requests
from simulator.power.row import Row
from simulator.power.row_file import PoolOfServers, read_row
from simulator.power.study import Study
from simulator.power.tonnage_policy import row_table
from simulator.power.trial import TrialRules, run_trial

RATES = RateCurve("steady", 600.0, np.ones(6))
EXAMPLES = sorted(Path("simulator/power/rows").glob("*.yaml"))


def row_of(tmp_path: Path, *pools: str, more: str = "") -> tuple[ServerPool, ...]:
    path = tmp_path / "row.yaml"
    path.write_text(f"{more}\npools:\n" + "\n".join(f"- {{{pool}}}" for pool in pools), encoding="utf-8")
    return read_row(path, RATES)


def mistakes_of(tmp_path: Path, *pools: str, more: str = "") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        row_of(tmp_path, *pools, more=more)
    return [str(each).partition("row.yaml, ")[2] for each in caught.value.mistakes]


def test_each_field_that_is_wrong_is_named(tmp_path: Path) -> None:
    said = mistakes_of(
        tmp_path,
        "name: a, class: middle, servers: 0",
        "name: b, class: low, servers: 2, machine: dgx-z9, wrk: chat",
        more="hours: -1",
    )
    places = sorted(each.partition(":")[0] for each in said)
    assert places == ["hours", "pools.0.class", "pools.0.servers", "pools.1.machine", "pools.1.wrk"]
    assert any("did you mean" in each and "work" in each for each in said) or any("work" in each for each in said)


def test_what_the_fields_say_together_is_checked(tmp_path: Path) -> None:
    said = mistakes_of(
        tmp_path,
        "name: a, class: low, servers: 1, step: {computeSeconds: 1.0, otherSeconds: 1.0}",
        "name: a, class: low, servers: 1, course: weekend",
        "name: c, class: low, servers: 1, course: [[1, 0]]",
    )
    places = [each.partition(":")[0] for each in said]
    assert places == ["pools.0.step", "pools.1.name", "pools.1.course", "pools.2.course"]


@pytest.mark.parametrize("content", ["pools: [", "just words", "{}"])
def test_a_file_that_is_no_row_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "row.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError):
        read_row(path, RATES)


def test_a_file_names_every_machine_that_there_is() -> None:
    assert set(PoolOfServers.model_fields["machine"].annotation.__args__) == set(MACHINES)


def test_a_course_is_repeated_for_the_hours_of_the_row(tmp_path: Path) -> None:
    (pool,) = row_of(tmp_path, "name: a, class: low, servers: 1, course: [[0.5, 0], [0.5, 0.2]]", more="hours: 3")
    assert pool.curve.for_s == 3 * 3600.0
    assert pool.curve.high_s() == ([1800.0, 5400.0, 9000.0], [3600.0, 7200.0, 10_800.0])


def test_training_swings_together_and_waits_for_its_slowest_server(tmp_path: Path) -> None:
    pools = row_of(
        tmp_path,
        "name: job, class: low, servers: 3, work: training, step: {computeSeconds: 3.0, otherSeconds: 1.0}",
        more="hours: 1",
    )
    row = Row(pools, draw_requests(pools, 1))
    draws = []
    for period in range(1, 9):
        row.advance(1.0 * period)
        draws.append(row.close_window().sum())
    machine = pools[0].machine
    compute_w, other_w = (3 * (machine.idle_w + machine.swing_w(share)) for share in (1.0, 0.4))
    assert draws == pytest.approx(2 * [compute_w, compute_w, compute_w, other_w])
    assert row.steps_s[0].tolist() == pytest.approx([4.0, 4.0], rel=1e-6)
    row.limit(1, clock=0.5, cap_w=np.inf)  # one server computes at 0.5 ** (0.9 / 1.3) of its speed
    row.advance(20.0)
    slower_s = 3.0 / 0.5 ** (0.9 / 1.3) + 1.0 / 0.5 ** (0.2 / 1.3)
    assert row.steps_s[0][2] == pytest.approx(slower_s, rel=1e-6)


def test_batch_jobs_take_their_steps_apart_and_pause_with_their_course(tmp_path: Path) -> None:
    pools = row_of(
        tmp_path, "name: night, class: low, servers: 8, work: batch, course: [[1, 1], [1, 0]]", more="hours: 2"
    )
    row = Row(pools, draw_requests(pools, 1))
    row.advance(1000.0)
    row.close_window()
    row.advance(1001.0)
    assert len(set(row.close_window().round())) > 1
    row.advance(3600.0 + 75.0)
    row.close_window()
    row.advance(7200.0)
    assert row.close_window() == pytest.approx([DGX_A100.idle_w] * 8)
    assert len(row.steps_s[0]) == pytest.approx(8 * 3600 / 75, rel=0.05)


def test_slices_draw_in_proportion_to_those_at_work(tmp_path: Path) -> None:
    (pool,) = row_of(tmp_path, "name: mig, class: low, servers: 1, machine: a100-mig")
    one, all_of_them = (pool.machine.token_swing_w(1), pool.machine.token_swing_w(1) * 56)
    assert pool.batch == 56
    assert pool.machine.token_swing_w(56) == pytest.approx(all_of_them)
    assert one < 100
    requests = draw_requests((pool,), 1)
    assert (requests.prompt_s == 0).all()
    work_s = (requests.tokens * pool.machine.token_seconds(1)).sum() / (56 * pool.curve.for_s)
    assert work_s == pytest.approx(0.8, rel=0.05)


def test_every_pool_has_its_own_devices_in_the_table(tmp_path: Path) -> None:
    pools = row_of(
        tmp_path,
        "name: a, class: high, servers: 2",
        "name: b, class: low, servers: 1, machine: dgx-b200, work: training",
        "name: c, class: low, servers: 1, gpuWatts: 300, otherWatts: 900, bursts: true",
    )
    table = row_table(pools, 40_000.0)
    assert table.devices.max_w.tolist() == [3200.0, 3200.0, 8000.0, 2400.0]
    assert [table.classes[row].name.split()[0] for row in table.devices.power_class] == ["high", "high", "low", "low"]
    assert [table.classes[row].bursts for row in table.devices.power_class] == [True, True, False, True]
    assert pools[1].machine.other_w == DGX_B200.other_w


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_shipped_row_runs_under_a_rival(path: Path) -> None:
    pools = read_row(path, RATES)
    policy = baseline("two-clocks", pools, 1e9, 2.0)
    outcome = run_trial(
        pools, draw_requests(pools, 1), for_s=3600.0, make_policy=lambda _: policy, rules=TrialRules(), seed=1
    )
    assert [pool.name for pool in outcome.pools] == [pool.name for pool in pools]


def test_servers_are_added_in_proportion_or_to_the_pools_that_are_named() -> None:
    mixed = Study(row=Path("simulator/power/rows/mixed-row.yaml"))
    assert mixed.planned == 40
    assert [pool.servers for pool in mixed.pools(50)] == [20, 10, 5, 10, 5]
    assert [pool.servers for pool in Study(row=mixed.row, grow=("training",)).pools(45)] == [16, 8, 4, 13, 4]
    assert sum(pool.servers for pool in mixed.pools(43)) == 43
