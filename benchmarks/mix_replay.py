"""Replay of GPU mixes: fraction of requests within the SLO with our and random routing, with and without headroom."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.mix_cases import Case, Outcome, Terms, run_case
from benchmarks.profiles import ProfileSet
from cluster.clock import Clock
from cluster.plans import Reason
from placement.mix.problem import in_flight_at_slo
from simulator.serving import Attained, ReplayedService, Router, ServingPool, replay_serving


@dataclass(frozen=True, slots=True)
class Replay:
    """Parameters of a replay."""

    seed: int
    for_s: float
    idle_share: float


def service_of(outcome: Outcome, profiles: ProfileSet) -> ReplayedService:
    """Simulated service with the GPU mix of a solved case."""
    if isinstance(outcome.answer, Reason):
        raise ValueError(f"replaying {outcome.case}: it has no mix: {outcome.answer.words}")
    (need,), (mix,) = outcome.question.needs, outcome.answer.mixes
    rows, columns = (np.array(numbers) for numbers in zip(*need.cells, strict=True))
    tokens = np.array(profiles.grid.output_tokens, dtype=np.float64)[columns]
    tables = profiles.tables[outcome.case.slo]
    pools = tuple(
        ServingPool(
            offer.gpu_type,
            int(mix.instances[g]),
            in_flight_at_slo(tables[offer.gpu_type][rows, columns], need.slo.tpot_s, tokens),
            mix.share[:, g],
        )
        for g, offer in enumerate(need.offers)
        if mix.instances[g]
    )
    return ReplayedService(need.rate_per_s, tokens, need.slo.tpot_s, pools)


def replay_case(case: Case, profiles: ProfileSet, terms: Terms, replay: Replay, clock: Clock) -> dict[str, Any]:
    """JSON object of a case: the mix with headroom under both routers, and the mix without it under ours."""
    with_headroom = run_case(case, profiles, terms, clock)
    without = run_case(case, profiles, replace(terms, headroom_share=0.0), clock)
    line: dict[str, Any] = {"workload": case.workload, "slo": case.slo, "rate": case.rate}
    if isinstance(with_headroom.answer, Reason):
        return line | {"infeasible": with_headroom.answer.words}
    if isinstance(without.answer, Reason):
        return line | {"infeasible": without.answer.words}
    cost, bare = with_headroom.answer.cost_per_hour, without.answer.cost_per_hour

    def run(outcome: Outcome, router: Router) -> Attained:
        return replay_serving(
            service_of(outcome, profiles),
            router=router,
            seed=replay.seed,
            for_s=replay.for_s,
            idle_share=replay.idle_share,
        )

    return line | {
        "cost_per_hour": round(cost, 6),
        "cost_without_headroom": round(bare, 6),
        "headroom_share_of_cost": cost / bare - 1,
        "weights": _fields(run(with_headroom, "weights")),
        "random": _fields(run(with_headroom, "random")),
        "weights_without_headroom": _fields(run(without, "weights")),
    }


def _fields(attained: Attained) -> dict[str, float]:
    return {
        "requests": attained.requests,
        "met_share": attained.met_share,
        "stretch_p50": attained.stretch_p50,
        "stretch_p99": attained.stretch_p99,
        "misrouted_share": attained.misrouted_share,
    }
