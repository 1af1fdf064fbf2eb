"""Small jobs and what happens to them, for tests."""

import numpy as np

from health.stream import Analyser
from health.verdicts.verdict import Fact, JobVerdict
from tests.rigs.health.cases import Case, case
from tests.rigs.health.job import DisturbanceKind


def judged(drawn: Case, facts: tuple[Fact, ...] | None = None) -> list[JobVerdict]:
    """Verdicts on a case, tick by tick."""
    analyser = Analyser(drawn.layout)
    found: list[JobVerdict] = []
    for now_s, frames in drawn.transcript.ticks():
        analyser.take(frames, now_s)
        known = drawn.facts_at(now_s) if facts is None else [fact for fact in facts if fact.since_s <= now_s]
        found += analyser.judge(now_s, known)
    return found


def blames(drawn: Case, facts: tuple[Fact, ...] | None = None) -> list[JobVerdict]:
    return [verdict for verdict in judged(drawn, facts) if verdict.blames]


def drawn(kind: DisturbanceKind, seed: int = 0, ranks: int = 16) -> Case:
    return case(seed, kind=kind, ranks=ranks)


def seeded(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
