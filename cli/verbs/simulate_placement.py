"""Replays of a contest of placement policies, with progress on standard error."""

import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cli.inputs.contest import Contest, ContestResult
from cli.printing.progress import progress_on, replay_in_words
from simulator.packing.policy_comparison import bounds_of, from_bytes, play, to_bytes
from simulator.packing.replay import Replay
from simulator.sweep.runner import Executor, ResultCache, Run, code_digest, digest_of, sweep


def run_contest(contest: Contest, way: Executor, results: Path | None = None) -> ContestResult:
    """Run the contest, with progress on standard error. results: folder for finished replays."""
    started_at, began = datetime.now(UTC), time.perf_counter()
    with progress_on(sys.stderr, len(contest.runs), replay_in_words) as on_done:
        replay = partial(play, traces=contest.traces, rules=contest.rules)
        swept = sweep(contest.runs, replay, way=way, cache=cache_of(contest, results), on_done=on_done)
    bounds = bounds_of([run for run, _ in swept.done], contest.traces)
    return ContestResult(contest, swept, bounds, started_at, time.perf_counter() - began)


def cache_of(contest: Contest, folder: Path | None) -> ResultCache[Run, Replay] | None:
    """Cache of the contest's replays, keyed by all that determines them: trace content, rules and code."""
    if folder is None:
        return None
    same = digest_of(repr(contest.rules), code_digest())

    def name_of(run: Run) -> str:
        return f"{run.trace}-{run.policy}-{run.seed}-{digest_of(contest.digests[run.trace], same)}.npz"

    return ResultCache(folder, name_of, to_bytes, from_bytes)
