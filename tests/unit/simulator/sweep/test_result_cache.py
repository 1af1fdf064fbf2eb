"""Finished runs outlive the process, and only results of the same inputs and code count."""

from pathlib import Path

import numpy as np
import pytest

from cluster.errors import ConfigError
from simulator.openb.generator import generate, trace_of
from simulator.packing.policy_comparison import play, summarise
from simulator.packing.replay import Replay
from simulator.sweep.runner import PolicyRun, ResultCache, code_digest, digest_of, runs_of, sweep

RUNS = runs_of(("a",), ("bestfit", "fgd"), (42, 43))


def cache_in(folder: Path, name: str = "x") -> ResultCache[PolicyRun, int]:
    return ResultCache(folder, int, lambda run: f"{run.policy}-{run.seed}-{name}")


def test_a_second_sweep_plays_only_what_is_missing(tmp_path: Path) -> None:
    cache, played = cache_in(tmp_path), list[PolicyRun]()

    def play_and_note(run: PolicyRun) -> int:
        played.append(run)
        return run.seed

    sweep(RUNS[:3], play_and_note, cache=cache)
    swept = sweep(RUNS, play_and_note, cache=cache)

    assert played == list(RUNS)
    assert swept.kept == 3
    assert [result for _, result in swept.done] == [run.seed for run in RUNS]


def test_results_of_other_inputs_are_not_taken(tmp_path: Path) -> None:
    sweep(RUNS, lambda _: 1, cache=cache_in(tmp_path, "old"))

    swept = sweep(RUNS, lambda _: 2, cache=cache_in(tmp_path, "new"))

    assert swept.kept == 0
    assert {result for _, result in swept.done} == {2}


@pytest.mark.parametrize("torn", [b"", b"PK", b"no frame at all"])
def test_a_torn_file_is_played_again(tmp_path: Path, torn: bytes) -> None:
    cache = cache_in(tmp_path)
    sweep(RUNS, lambda run: run.seed, cache=cache)
    (tmp_path / cache.name_of(RUNS[1])).write_bytes(torn)

    swept = sweep(RUNS, lambda run: run.seed, cache=cache)

    assert swept.kept == 3
    assert swept.done[1][1] == RUNS[1].seed


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")

    with pytest.raises(ConfigError, match="results"):
        sweep(RUNS, lambda _: 1, cache=cache_in(tmp_path / "file"))


def test_a_replay_comes_back_from_its_file_whole(tmp_path: Path) -> None:
    traces = {"small": trace_of(generate(20, seed=3), {"G2": 1.0})}
    run = PolicyRun("small", "fgd", 7)
    played = play(run, traces)

    kept = ResultCache(tmp_path, Replay, name_of=lambda run: str(run.seed))
    kept.put(run, played)
    read = kept.find(run)

    assert read is not None
    assert read.shortages == played.shortages
    np.testing.assert_array_equal(read.decision_s, played.decision_s)
    before, after = (summarise([(run, each)], priced=True)[0] for each in (played, read))
    np.testing.assert_array_equal(before.allocation_pct, after.allocation_pct)
    np.testing.assert_array_equal(before.stranded_per_hour, after.stranded_per_hour)


def test_digests_tell_parts_apart() -> None:
    assert digest_of("ab", "c") != digest_of("a", "bc")
    assert code_digest() == code_digest()
