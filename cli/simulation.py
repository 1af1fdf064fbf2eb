"""Running a contest of policies with progress for whoever waits, and what came of it."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from cli.contest import Contest
from cli.progress import progress_on
from simulator.contest import bounds_of, play
from simulator.replay import Replay
from simulator.sweep import Swept, sweep


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was asked for and what came of it."""

    contest: Contest
    swept: Swept[Replay]
    bound_pct: Mapping[str, float]
    """The most that any policy could have allocated at 100 % arrived, by trace, mean over the seeds."""
    started_at: datetime
    wall_s: float


def simulated(contest: Contest, jobs: int) -> Outcome:
    """Runs the contest, with progress on standard error."""
    started_at, began = datetime.now(UTC), time.perf_counter()
    with progress_on(sys.stderr, len(contest.runs)) as on_done:
        replay = partial(play, traces=contest.traces, rules=contest.rules)
        swept = sweep(contest.runs, replay, jobs=jobs, on_done=on_done)
    bounds = bounds_of([run for run, _ in swept.done], contest.traces)
    return Outcome(contest, swept, bounds, started_at, time.perf_counter() - began)
