"""Verdicts on drawn cases, with each feature of the analyser and without, and whether they were right."""

from collections.abc import Mapping, Sequence
from time import process_time
from typing import Any

import numpy as np

from health.analysis.excess import TIERS
from health.probing import AnswerKind
from health.stream import Analyser, Options
from health.verdicts.verdict import OWN_LIMITS, Cause, FactKind, JobVerdict, Part, Syndrome
from tests.rigs.health.cases import Case, Probed, SimulatedNetwork, probed
from tests.rigs.health.job import DisturbanceKind

VARIANTS: Mapping[str, Options] = {
    "tonnage": Options(),
    "simple": Options(tiers=TIERS[:1], points=False, causes=False),
    "no short windows": Options(tiers=TIERS[-1:]),
    "no long windows": Options(tiers=TIERS[:1]),
    "no point pattern": Options(points=False),
    "no negative verdicts": Options(causes=False),
    "no hardware evidence": Options(),
    "own limits hidden": Options(),
    "with pair probes": Options(),
    "probes pass another network": Options(),
}
"""`simple` is the first rule that worked: one window of five steps, nothing else."""
HIDDEN: Mapping[str, tuple[FactKind, ...]] = {
    "simple": tuple(FactKind),
    "no hardware evidence": tuple(kind for kind in FactKind if kind not in OWN_LIMITS),
    "own limits hidden": tuple(OWN_LIMITS),
}
"""Facts that a variant is not told."""
PROBED, PROBED_ELSEWHERE = "with pair probes", "probes pass another network"
"""Variants of the shipped analyser, whose suspicions of the network are confirmed by pair probes; in the second the
fault is where they do not pass, so that what they say must be no accusation."""
CAUSES = {
    DisturbanceKind.CHECKPOINT: Cause.CHECKPOINT,
    DisturbanceKind.EVALUATION: Cause.EVALUATION,
    DisturbanceKind.COMPILATION: Cause.COMPILATION,
    DisturbanceKind.UNEVEN_DATA: Cause.DATA_IMBALANCE,
    DisturbanceKind.LONG_REPLICA: Cause.DATA_IMBALANCE,
    DisturbanceKind.STAGE_LOAD: Cause.STAGE_IMBALANCE,
    DisturbanceKind.ALL_SLOW: Cause.ALL_SLOW,
    DisturbanceKind.POWER_CAP: Cause.POWER_CAP,
    DisturbanceKind.CGROUP_LIMIT: Cause.THROTTLED,
}


def verdicts_on(drawn: Case, options: Options, hidden: Sequence[FactKind] = ()) -> list[JobVerdict]:
    """All verdicts of a case, tick by tick as its frames arrive. hidden: facts that the analyser is not told."""
    analyser = Analyser(drawn.layout, options)
    verdicts: list[JobVerdict] = []
    for now_s, frames in drawn.transcript.ticks():
        analyser.take(frames, now_s)
        verdicts += analyser.judge(now_s, [fact for fact in drawn.facts_at(now_s) if fact.kind not in hidden])
    return verdicts


def names(drawn: Case, verdict: JobVerdict | None) -> bool:
    """Whether a verdict names the part at fault, or of a NIC its node: probes cannot tell which of its NICs."""
    truth = drawn.truth
    if verdict is None or truth is None:
        return False
    is_named = verdict.at_s >= truth.fault_s and (verdict.part, verdict.ranks) in truth.parts
    return (is_named and verdict.syndrome is truth.syndrome) or _names_node(drawn, verdict)


def _names_node(drawn: Case, verdict: JobVerdict) -> bool:
    truth = drawn.truth
    if truth is None or verdict.part is not Part.NIC or truth.parts[0][0] is not Part.NIC:
        return False
    nodes = set(drawn.job.node[list(verdict.ranks)].tolist())
    return set(truth.parts[0][1]) <= set(verdict.ranks) and len(nodes) == 1


def score(drawn: Case, variant: str) -> dict[str, Any]:
    """Whether the verdicts on a case were right, when, and about what."""
    began_s = process_time()
    verdicts = verdicts_on(drawn, VARIANTS[variant], HIDDEN.get(variant, ()))
    cpu_s = process_time() - began_s
    asking: JobVerdict | None = None
    answer: Probed | None = None
    if variant in (PROBED, PROBED_ELSEWHERE):
        # The first verdict that pair probes are for: a job asks once in two minutes.
        chance = np.random.default_rng([drawn.seed, 77])
        network = SimulatedNetwork(drawn, chance, hidden=variant == PROBED_ELSEWHERE)
        answers = ((each, probed(drawn, each, network)) for each in verdicts)
        first_asked, answer = next(((each, made) for each, made in answers if made is not None), (None, None))
        if answer is not None:
            # What was blamed and is confirmed or narrowed stays; what was acquitted does not.
            kept = [each for each in verdicts if each is not first_asked or answer.verdict.cause is None]
            verdicts = sorted([*kept, answer.verdict], key=lambda each: each.at_s)
            asking = first_asked if answer.found in (AnswerKind.NIC, AnswerKind.LINK) else None
    truth = drawn.truth
    fault_s = truth.fault_s if truth else np.inf
    blames = [verdict for verdict in verdicts if verdict.blames]
    first = next((verdict for verdict in blames if verdict.at_s >= fault_s), None)
    last = answer.verdict if answer and answer.verdict.blames else first
    right = truth is not None and first is not None and first.syndrome is truth.syndrome
    # Narrowed: it names the link itself, not its group alone.
    is_narrow = truth is not None and last is not None and (last.part, last.ranks) == truth.parts[0]
    latency_s = float(first.at_s - fault_s) if first is not None else float("nan")
    lines = (f"{v.at_s - (fault_s if truth else 0):.1f}s {v.syndrome} {v.part} {v.ranks[:4]}" for v in blames)
    return {
        "variant": variant,
        "seed": drawn.seed,
        "ranks": drawn.job.ranks,
        "kind": drawn.disturbance.kind,
        "share": round(drawn.share, 3),
        "syndrome": truth.syndrome if truth else Syndrome.NONE,
        "part": truth.parts[0][0] if truth else Part.NOTHING,
        "class_right": right,
        "part_right": right and names(drawn, last),
        "narrowed": right and (is_narrow or (last is not None and _names_node(drawn, last))),
        "abstained": first is None and any(each.abstains and each.at_s >= fault_s for each in verdicts),
        "false_blames": sum(not names(drawn, each) for each in blames if each is not asking),
        "cause_right": CAUSES.get(drawn.disturbance.kind) in {each.cause for each in verdicts},
        "latency_s": latency_s,
        "latency_steps": latency_s / (drawn.step_s * (1 + drawn.share)),
        "cpu_s": cpu_s,
        "records": drawn.transcript.records,
        "verdict": "; ".join(lines),
        "answer": str(answer.found) if answer else "",
        "probes_s": answer.took_s if answer else 0.0,
    }
