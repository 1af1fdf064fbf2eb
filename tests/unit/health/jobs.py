"""Small jobs and what happens to them, for tests."""

from dataclasses import replace

import numpy as np

from health.stream import Analyser
from health.verdicts.verdict import Fact, JobVerdict
from tests.rigs.health.cases import Case, case
from tests.rigs.health.job import DisturbanceKind
from tonnage.records import Kind, Times


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


def queued_ahead(found: Case, ahead: float) -> Case:
    """The same as hosts tell it that queue this share of a step ahead of their devices."""
    rows, ahead_ns = found.transcript.rows.copy(), int(ahead * found.step_s * 1e9)
    done = rows["kind"] == Kind.OPERATION
    rows["at_ns"][done] -= ahead_ns
    rows["for_ns"][done] += ahead_ns
    seen = replace(found.transcript, rows=rows)
    return replace(found, transcript=seen, layout=replace(found.layout, times=Times.QUEUED))


def seeded(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
