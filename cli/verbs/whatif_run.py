"""Planning of what-if scenarios, with progress on standard error and finished answers cached in a folder."""

import pickle
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec

from cli.inputs.scenarios import WhatIfOptions, WhatIfResult, scenario_label
from cli.printing.progress import progress_on
from cluster.errors import UNREADABLE, ConfigError, Mistake
from cluster.snapshot import Snapshot
from simulator.scenarios import Answer, Scenario, answered, changed
from simulator.sweep.runner import Executor, Progress, ResultCache, code_digest, digest_of, sweep


def run_scenarios(
    scenarios: Sequence[Scenario], options: WhatIfOptions, snapshot: Snapshot, way: Executor
) -> WhatIfResult:
    """Plan every scenario, with progress on standard error. Raises ConfigError before planning starts."""
    mistakes: list[Mistake] = []
    for scenario in scenarios:
        try:
            changed(snapshot, scenario)
        except ConfigError as error:
            mistakes += [mistake for mistake in error.mistakes if mistake not in mistakes]
    if mistakes:
        raise ConfigError(tuple(mistakes))
    started_at, began = datetime.now(UTC), time.perf_counter()
    play = partial(answered, snapshot=snapshot, within_s=options.deadline_s)
    with progress_on(sys.stderr, len(scenarios), _in_words) as on_done:
        swept = sweep(scenarios, play, way=way, cache=_cache_of(options, snapshot), on_done=on_done)
    return WhatIfResult(tuple(scenarios), swept, started_at, time.perf_counter() - began)


def _cache_of(options: WhatIfOptions, snapshot: Snapshot) -> ResultCache[Scenario, Answer] | None:
    if options.results is None:
        return None
    # The same manifests read by the same code give the same bytes.
    same = digest_of(pickle.dumps(snapshot), code_digest(), repr(options.deadline_s))

    def from_bytes(data: bytes) -> Answer:
        try:
            return msgspec.json.decode(data, type=Answer)
        except UNREADABLE as error:
            raise ValueError(f"not an answer: {error}") from error

    return ResultCache(
        options.results, lambda run: f"whatif-{digest_of(repr(run), same)}.json", msgspec.json.encode, from_bytes
    )


def _in_words(progress: Progress[Scenario, Answer]) -> str:
    return f"{scenario_label(progress.run)}: ${progress.result.services_per_hour:,.2f}/h for services"
