"""Sweeps on an embedded Ray: the same results as in processes, errors passed on whole, and resumed after a kill."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.errors import ConfigError, Mistake
from simulator.sweep.on_ray import SweepOnRay
from simulator.sweep.runner import PolicyRun, SweepProgress, Swept, runs_of, sweep
from tests.chaos.nodes import parents, tree_of
from tests.until import until

RUNS = runs_of(("a", "b"), ("bestfit", "fgd"), (42, 43))
REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 300.0


def drawn(run: PolicyRun) -> tuple[str, int]:
    return run.policy, run.seed * len(run.trace)


def mistaken(run: PolicyRun) -> int:
    raise ConfigError(Mistake(f"trace {run.trace}", "is a bad one", "give another"))


def test_results_come_in_the_order_asked_and_ray_leaves_nothing() -> None:
    home, auth = Path.home() / ".ray", os.environ.get("RAY_AUTH_MODE")
    was_there = home.exists()

    swept = sweep(RUNS, drawn, way=SweepOnRay(jobs=2))

    assert swept == Swept(done=tuple((run, drawn(run)) for run in RUNS))
    assert home.exists() == was_there
    assert os.environ.get("RAY_AUTH_MODE") == auth


def test_a_mistake_in_a_run_crosses_ray_whole() -> None:
    with pytest.raises(ConfigError) as wrong:
        sweep(RUNS, mistaken, way=SweepOnRay(jobs=1))

    assert wrong.value.mistakes[0].remedy == "give another"


def test_ctrl_c_keeps_what_is_done() -> None:
    def press_ctrl_c(_: SweepProgress[PolicyRun, tuple[str, int]]) -> None:
        raise KeyboardInterrupt

    swept = sweep(RUNS, drawn, way=SweepOnRay(jobs=1), on_done=press_ctrl_c)

    assert len(swept.done) == 1
    assert swept.stopped == "interrupted"


def test_a_cluster_needs_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigError, match="no token"):
        sweep(RUNS, drawn, way=SweepOnRay("127.0.0.1:1"))


def test_a_killed_driver_goes_on_where_it_was(tmp_path: Path) -> None:
    results = tmp_path / "runs"
    command = (
        *(sys.executable, "-m", "cli.main", "simulate", "placement", "--generate", "60", "--policies", "bestfit,fgd"),
        *("--seeds", "1-12", "--jobs", "2", "--ray", "embedded", "--results", str(results), "-o", "json"),
    )
    first = _started(command)
    until(lambda: len(list(results.glob("*.frame"))) >= 3, "three runs are done", PATIENCE_S)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = {path: path.stat().st_mtime_ns for path in results.glob("*.frame")}

    second = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S, check=True)  # noqa: S603

    assert 3 <= len(kept) < 24, "the kill came after the last run: nothing was shown"
    assert f"{len(kept)} replays were kept" in second.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert [len(policy["seeds"]) for policy in json.loads(second.stdout)["policies"]] == [12, 12]


def test_a_lost_head_costs_what_was_under_way_and_the_sweep_goes_on(tmp_path: Path) -> None:
    results = tmp_path / "runs"
    command = (
        *(sys.executable, "-m", "cli.main", "simulate", "placement", "--generate", "60", "--policies", "bestfit,fgd"),
        *("--seeds", "1-40", "--jobs", "2", "--ray", "embedded", "--results", str(results), "-o", "json"),
    )
    with subprocess.Popen(  # noqa: S603
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as sweeping:
        until(lambda: len(list(results.glob("*.frame"))) >= 3, "three runs are done", PATIENCE_S)
        started = tree_of(sweeping.pid)[1:]
        programs = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in started}
        # Both: without its tables alone, Ray would go on for longer than the sweep lasts on a quiet machine.
        head = [pid for pid, program in programs.items() if b"gcs_server" in program or b"raylet/raylet" in program]
        assert len(head) == 2
        for pid in head:
            os.kill(pid, signal.SIGKILL)
        kept = len(list(results.glob("*.frame")))
        stdout, stderr = sweeping.communicate(timeout=PATIENCE_S)

    assert kept < 80, "the kill came after the last run: nothing was shown"
    assert (sweeping.returncode, "the driver of background work was lost" in stderr) == (0, True)
    assert [len(policy["seeds"]) for policy in json.loads(stdout)["policies"]] == [40, 40]
    until(lambda: not set(started) & parents().keys(), "its processes are gone")


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
