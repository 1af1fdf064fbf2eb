"""Cases of the mix benchmark: one workload at one SLO and rate, its optimisation problem, and its output line."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.profiles import ProfileSet
from benchmarks.textbook_mix import TextbookAnswer, solve_textbook
from cluster.clock import Clock
from cluster.demand import ThroughputProfile
from cluster.plans import Reason
from placement.budget import Budget
from placement.mix.feasibility import violations
from placement.mix.heuristics import best_single_type
from placement.mix.optimizer import answer_mix, work_of
from placement.mix.problem import MixAnswer, MixQuestion, Need, mix_cost
from placement.mix.problem_builder import offer_of
from placement.stock import Stock


@dataclass(frozen=True, slots=True)
class Case:
    workload: str
    slo: str
    rate: float


@dataclass(frozen=True, slots=True)
class Terms:
    """Parameters of all cases of a run."""

    slice_factor: int | None
    headroom_share: float | None
    per_instance: bool
    stock: Mapping[str, Stock]
    deadline_s: float
    """Nominal time that sets the amount of work per case; no case ends by the clock."""
    gap: float


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    case: Case
    question: MixQuestion
    answer: MixAnswer | Reason
    seconds: float
    """Seconds from the profile's tables to the verified answer."""
    peer: TextbookAnswer | None = None


def question_of(case: Case, profiles: ProfileSet, terms: Terms) -> MixQuestion:
    share = profiles.workloads[case.workload]
    cells = tuple((int(i), int(j)) for i, j in np.argwhere(share > 0))
    rate = np.array([share[cell] * case.rate for cell in cells])
    slo = profiles.slos[case.slo]
    tables = profiles.tables[case.slo]
    offers = (
        offer_of(
            ThroughputProfile(case.workload, name, slo, profiles.grid, tables[name]), price, profiles.grid, cells, rate
        )
        for name, price in profiles.prices.items()
    )
    need = Need(
        service=case.workload,
        slo=slo,
        grid=profiles.grid,
        cells=cells,
        rate_per_s=rate,
        offers=tuple(offers),
        slice_factor=terms.slice_factor,
        headroom_share=terms.headroom_share,
    )
    return MixQuestion((need,), terms.stock, per_instance=terms.per_instance)


def run_case(case: Case, profiles: ProfileSet, terms: Terms, clock: Clock) -> Outcome:
    """Solve a case. Raises AssertionError when the answer fails its verification, which would be a bug."""
    began = clock()
    question = question_of(case, profiles, terms)
    budget = Budget(work_of(terms.deadline_s), clock)
    answer = answer_mix(question, budget, gap=terms.gap)
    seconds = clock() - began
    if isinstance(answer, MixAnswer) and (wrong := violations(question, answer.mixes)):
        raise AssertionError(f"{case}: {'; '.join(wrong)}")
    return Outcome(case, question, answer, seconds)


def with_peer(outcome: Outcome, *, limit_s: float, clock: Clock) -> Outcome:
    """The outcome with the textbook model's answer to the same problem; none where a bucket cannot be served."""
    if isinstance(outcome.answer, Reason) and outcome.answer.code == "BucketUnserved":
        return outcome
    return replace(outcome, peer=solve_textbook(outcome.question, limit_s=limit_s, clock=clock))


def line_of(outcome: Outcome) -> dict[str, Any]:
    """JSON object of a case. Costs are US dollars per hour."""
    case, answer = outcome.case, outcome.answer
    line: dict[str, Any] = {"workload": case.workload, "slo": case.slo, "rate": case.rate}
    if isinstance(answer, Reason):
        line |= {"infeasible": answer.words, "code": answer.code, "figures": dict(answer.figures)}
        line |= {"seconds": round(outcome.seconds, 4)}
    else:
        line |= _answer_fields(outcome, answer)
    if outcome.peer is not None:
        cost = outcome.peer.cost_per_hour
        line["peer"] = {
            "cost_per_hour": None if cost is None else round(cost, 6),
            "proven": outcome.peer.proven,
            "seconds": round(outcome.peer.seconds, 4),
        }
    return line


def _answer_fields(outcome: Outcome, answer: MixAnswer) -> dict[str, Any]:
    (need,), (mix,) = outcome.question.needs, answer.mixes
    return {
        "cost_per_hour": round(answer.cost_per_hour, 6),
        "bound": round(answer.certificate.bound, 6),
        "gap": answer.certificate.gap,
        "seconds": round(outcome.seconds, 4),
        "solver": answer.certificate.solver,
        "instances": {o.instance_type.name: n for o, n in zip(need.offers, mix.instances.tolist(), strict=True)},
        "fluid_cost_per_hour": round(answer.fluid_cost_per_hour, 6),
        "single_type": single_type_of(need, outcome.question),
        "headroom": "auto" if need.headroom_share is None else need.headroom_share,
        "per_instance": outcome.question.per_instance,
        "slice_factor": need.slice_factor,
    }


def single_type_of(need: Need, question: MixQuestion) -> dict[str, Any] | None:
    """Cheapest fleet of a single GPU type, for comparison; None when no type suffices."""
    single = best_single_type(need, question.stock)
    if single is None:
        return None
    name = need.offers[int(single.instances.argmax())].gpu_type
    return {"gpu_type": name, "cost_per_hour": round(mix_cost(need, single), 6)}


def summary_of(outcomes: list[Outcome]) -> dict[str, Any]:
    """Number of solved cases, times, and the comparison with the textbook model."""
    answered = [o for o in outcomes if isinstance(o.answer, MixAnswer)]
    seconds = [o.seconds for o in outcomes]
    gaps = [o.answer.certificate.gap for o in answered if isinstance(o.answer, MixAnswer)]
    summary: dict[str, Any] = {
        "cases": len(outcomes),
        "answered": len(answered),
        "proven_optimal": sum(gap <= 1e-9 for gap in gaps),
        "largest_gap": max(gaps, default=0.0),
        "seconds_mean": math.fsum(seconds) / max(len(seconds), 1),
        "seconds_worst": max(seconds, default=0.0),
    }
    against = [o for o in outcomes if o.peer is not None]
    if against:
        summary["textbook"] = _comparison(against)
    return summary


def _comparison(outcomes: list[Outcome]) -> dict[str, Any]:
    pairs = [(o, o.peer) for o in outcomes if o.peer is not None]
    times = sorted(peer.seconds / o.seconds for o, peer in pairs)
    return {
        "cases": len(pairs),
        "answered": sum(peer.cost_per_hour is not None for _, peer in pairs),
        "proven_optimal": sum(peer.proven for _, peer in pairs),
        "dearer": sum(
            isinstance(o.answer, MixAnswer)
            and peer.cost_per_hour is not None
            and peer.cost_per_hour > o.answer.cost_per_hour + 1e-3
            for o, peer in pairs
        ),
        "seconds_mean": math.fsum(peer.seconds for _, peer in pairs) / len(pairs),
        "seconds_worst": max(peer.seconds for _, peer in pairs),
        "time_ratio_median": times[len(times) // 2],
        "time_ratio_total": math.fsum(p.seconds for _, p in pairs) / math.fsum(o.seconds for o, _ in pairs),
    }
