"""Scores of the health analyser on cases: was the verdict right, when, and about what."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import process_time

import numpy as np

from health.analysis.excess import TIERS
from health.probing import Found
from health.stream import Analyser, Options
from health.verdicts.verdict import Cause, Part, Syndrome, Verdict
from simulator.health.cases import Case, Probed, SimulatedNetwork, probed
from simulator.health.job import LIMITS, DisturbanceKind

VARIANTS: Mapping[str, Options] = {
    "tonnage": Options(),
    "simple": Options(clocks=False, tiers=TIERS[:1], points=False, causes=False, facts=False, limits=False),
    "no clock alignment": Options(clocks=False),
    "no short windows": Options(tiers=TIERS[-1:]),
    "no long windows": Options(tiers=TIERS[:1]),
    "no point pattern": Options(points=False),
    "no negative verdicts": Options(causes=False),
    "no hardware evidence": Options(facts=False),
    "own limits hidden": Options(limits=False),
    "with pair probes": Options(),
    "probes pass another network": Options(),
}
"""`simple` is the first rule that worked: one window of four steps, nothing else."""
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


@dataclass(frozen=True, slots=True)
class Score:
    """One case under one variant."""

    variant: str
    seed: int
    ranks: int
    kind: str
    share: float
    """Slow-down of the step by a slow fault."""
    syndrome: str
    """Of the fault; `none` without one."""
    part: str
    blamed: bool
    class_right: bool
    """Whether the first verdict that blames names the fault's syndrome."""
    part_right: bool
    """And the part at fault."""
    narrowed: bool
    """Whether it names the link itself, not its group alone."""
    abstained: bool
    false_blames: int
    """Verdicts that blame something that is not at fault."""
    cause_right: bool
    """Whether the cause that is no fault was named."""
    latency_s: float
    latency_steps: float
    """In steps of the job, which a slow fault makes longer."""
    cpu_s: float
    records: int
    verdict: str
    answer: str = ""
    """What pair probes answered; empty where none were called for."""
    probes_s: float = 0.0
    """From the verdict to that answer."""


def scored(case: Case, name: str, options: Options) -> Score:
    started_s = process_time()
    verdicts = verdicts_on(case, options)
    cpu_s = process_time() - started_s
    asking: Verdict | None = None
    answered = _answered(case, verdicts, name) if name in (PROBED, PROBED_ELSEWHERE) else None
    if answered is not None:
        verdicts = _with_answer(verdicts, *answered)
        asking = answered[0] if answered[1].found in (Found.NIC, Found.LINK) else None
    truth = case.truth
    fault_s = truth.fault_s if truth else np.inf
    blames = [verdict for verdict in verdicts if verdict.blames]
    after = [verdict for verdict in blames if verdict.at_s >= fault_s]
    first = after[0] if after else None
    last = answered[1].verdict if answered and answered[1].verdict.blames else first
    class_right = truth is not None and first is not None and first.syndrome is truth.syndrome
    latency_s = first.at_s - fault_s if first is not None else np.nan
    return Score(
        name,
        case.seed,
        case.job.ranks,
        case.disturbance.kind,
        round(case.share, 3),
        truth.syndrome if truth else Syndrome.NONE,
        truth.parts[0][0] if truth else Part.NOTHING,
        first is not None,
        class_right,
        class_right and (_names(case, last) or _names_node(case, last)),
        class_right and _is_narrow(case, last),
        first is None and any(verdict.abstains and verdict.at_s >= fault_s for verdict in verdicts),
        sum(not (_names(case, verdict) or _names_node(case, verdict)) for verdict in blames if verdict is not asking),
        CAUSES.get(case.disturbance.kind) in {verdict.cause for verdict in verdicts},
        float(latency_s),
        float(latency_s / (case.step_s * (1 + case.share))),
        cpu_s,
        case.transcript.records,
        "; ".join(f"{v.at_s - (fault_s if truth else 0):.1f}s {v.syndrome} {v.part} {v.ranks[:4]}" for v in blames),
        str(answered[1].found) if answered else "",
        answered[1].took_s if answered else 0.0,
    )


def _answered(case: Case, verdicts: Sequence[Verdict], name: str) -> tuple[Verdict, Probed] | None:
    """The first verdict that pair probes are for, and what they make of it: a job asks once in two minutes."""
    network = SimulatedNetwork(case, np.random.default_rng([case.seed, 77]), hidden=name == PROBED_ELSEWHERE)
    for verdict in verdicts:
        if (made := probed(case, verdict, network)) is not None:
            return verdict, made
    return None


def _with_answer(verdicts: Sequence[Verdict], asking: Verdict, made: Probed) -> list[Verdict]:
    """Verdicts in order of time: what was blamed and is confirmed or narrowed stays, what was acquitted does not."""
    is_acquitted = made.verdict.cause is not None
    kept = [each for each in verdicts if each is not asking or not is_acquitted]
    return sorted([*kept, made.verdict], key=lambda each: each.at_s)


def _names(case: Case, verdict: Verdict | None) -> bool:
    truth = case.truth
    return (
        verdict is not None
        and truth is not None
        and verdict.at_s >= truth.fault_s
        and (verdict.part, verdict.ranks) in truth.parts
        and verdict.syndrome is truth.syndrome
    )


def _names_node(case: Case, verdict: Verdict | None) -> bool:
    """Whether a NIC is named by its node alone, as pair probes do: which of a node's NICs it is they cannot tell."""
    truth = case.truth
    if truth is None or verdict is None or verdict.part is not Part.NIC or truth.parts[0][0] is not Part.NIC:
        return False
    return set(truth.parts[0][1]) <= set(verdict.ranks) and len(set(case.job.node[list(verdict.ranks)].tolist())) == 1


def _is_narrow(case: Case, verdict: Verdict | None) -> bool:
    truth = case.truth
    exact = truth is not None and verdict is not None and (verdict.part, verdict.ranks) == truth.parts[0]
    return exact or _names_node(case, verdict)


def verdicts_on(case: Case, options: Options) -> list[Verdict]:
    """All verdicts of a case, tick by tick as its frames arrive."""
    analyser = Analyser(case.layout, options)
    verdicts: list[Verdict] = []
    for now_s, frames in case.transcript.ticks():
        analyser.take(frames, now_s)
        verdicts += analyser.judge(now_s, case.facts_at(now_s))
    return verdicts


@dataclass(frozen=True, slots=True)
class Summary:
    """All cases of one variant."""

    variant: str
    cases: int
    faults: int
    precision: float
    """Verdicts that blame, of the right class, over all that blame."""
    recall: float
    """Faults found with the right class; an abstention is no find."""
    recall_decided: float
    """The same without faults on which it abstained."""
    abstained: int
    top1_rank: float
    """Of verdicts of the right class: the right rank or node."""
    top1_nic: float
    top1_link: float
    by_group: int
    """Links and NICs that one ring alone uses, named by its group: a probe must tell more. In neither share above."""
    false_alarms: int
    """Cases without a fault in which something was blamed."""
    causes_named: float
    """Cases with a nameable cause that is no fault, in which it was named."""
    limits_blamed: int
    """Cases with our own power cap or cgroup limit in which something was blamed."""
    hang_p50_s: float
    hang_p95_s: float
    dead_p95_s: float
    """Dead processes; their peers' connections break."""
    dead_max_s: float
    lost_node_p95_s: float
    """Nodes that fell silent: nothing breaks a connection."""
    slow20_p95_s: float
    """Faults of at least 20 % of a step."""
    slow20_in_time: float
    """Of those found: within 10 steps or 5 s, whichever is later."""
    slow10_p95_s: float
    slow10_recall: float
    probed: int
    """Cases in which pair probes were called for."""
    probes_s: float
    """Longest time from a verdict to their answer."""
    acquitted: int
    """Faults of the network that they called sound."""

    def record(self) -> dict[str, object]:
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


def summary(scores: Sequence[Score]) -> Summary:
    faults = [score for score in scores if score.syndrome != Syndrome.NONE]
    others = [score for score in scores if score.syndrome == Syndrome.NONE]
    right = [score for score in faults if score.class_right]
    wrong_parts = sum(score.class_right and not score.part_right for score in faults)
    false = max(sum(score.false_blames for score in scores) - wrong_parts, 0)
    told = [score for score in right if score.narrowed or not score.part_right]
    strong = [score for score in right if score.share >= 0.2]
    weak = [score for score in faults if 0 < score.share < 0.2]
    hangs = [score.latency_s for score in right if score.syndrome.endswith("hang")]
    dead = [score.latency_s for score in right if score.kind == DisturbanceKind.DEAD_RANK]
    lost = [score.latency_s for score in right if score.kind == DisturbanceKind.DEAD_NODE]
    abstained = sum(score.abstained for score in faults)
    nameable = [score for score in others if score.kind in CAUSES]
    return Summary(
        variant=scores[0].variant,
        cases=len(scores),
        faults=len(faults),
        precision=len(right) / max(len(right) + false, 1),
        recall=len(right) / max(len(faults), 1),
        recall_decided=len(right) / max(len(faults) - abstained, 1),
        abstained=abstained,
        top1_rank=_share(score.part_right for score in right if score.part in (Part.RANK, Part.NODE)),
        top1_nic=_share(score.narrowed for score in told if score.part == Part.NIC),
        top1_link=_share(score.narrowed for score in told if score.part == Part.LINK),
        by_group=len(right) - len(told),
        false_alarms=sum(score.false_blames > 0 for score in others),
        causes_named=_share(score.cause_right for score in nameable),
        limits_blamed=sum(score.false_blames > 0 for score in others if score.kind in LIMITS),
        hang_p50_s=_quantile(hangs, 0.5),
        hang_p95_s=_quantile(hangs, 0.95),
        dead_p95_s=_quantile(dead, 0.95),
        dead_max_s=_quantile(dead, 1.0),
        lost_node_p95_s=_quantile(lost, 0.95),
        slow20_p95_s=_quantile([score.latency_s for score in strong], 0.95),
        slow20_in_time=_share(score.latency_s <= 5 or score.latency_steps <= 10 for score in strong),
        slow10_p95_s=_quantile([score.latency_s for score in weak if score.class_right], 0.95),
        slow10_recall=_share(score.class_right and score.latency_s <= 60 for score in weak),
        probed=sum(score.answer != "" for score in scores),
        probes_s=max(score.probes_s for score in scores),
        acquitted=sum(score.answer == "sound" and score.part in (Part.NIC, Part.LINK) for score in scores),
    )


def _share(found: Iterable[bool]) -> float:
    values = list(found)
    return sum(values) / len(values) if values else float("nan")


def _quantile(values: Sequence[float], level: float) -> float:
    return float(np.quantile(values, level)) if values else float("nan")
