"""Mixes of profiles' workloads, solved and verified, and the simulated services that run on them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster import demand, errors, plans
from placement.budget import Budget
from placement.mix import feasibility, optimizer, problem, problem_builder
from tests.rigs.serving import ReplayedService, ServingPool
from tests.rigs.serving_profiles import ProfileSet, random_profiles, read_profiles, roofline_profiles


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """One workload at one SLO and rate, with its mix."""

    about: dict[str, Any]
    question: problem.MixQuestion
    answer: problem.MixAnswer | plans.Reason
    seconds: float
    """From the profile's tables to the verified answer."""


def profiles_from(file: Path | None, size: tuple[int, ...] | None, seed: int) -> ProfileSet:
    """size: GPU types and buckets of generated profiles; None: those of the file, or of the roofline without one."""
    if size:
        return random_profiles(size[0], size[1], seed)
    return read_profiles(file) if file else roofline_profiles()


def solved_cases(
    profiles: ProfileSet,
    workloads: Sequence[str],
    slos: Sequence[str],
    rates: Sequence[float],
    *,
    slice_factor: int | None,
    headroom: float | None,
    deadline_s: float = 10.0,
    gap: float = 0.0,
) -> Iterator[Solved]:
    """Every combination, empty sequences meaning all of the profiles'.

    deadline_s: nominal time that sets the amount of work per case; no case ends by the clock. Raises ConfigError, and
    AssertionError when an answer fails its verification, which would be a bug.
    """
    for chosen, known in ((workloads, profiles.workloads), (slos, profiles.tables)):
        if unknown := [name for name in chosen if name not in known]:
            raise errors.ConfigError(
                errors.Mistake(", ".join(unknown), "is not in the profiles", f"they have {', '.join(known)}")
            )
    cases = (
        (workload, slo, rate)
        for workload in workloads or profiles.workloads
        for slo in slos or profiles.tables
        for rate in rates or profiles.rates
    )
    for workload, slo, rate in cases:
        began_s = time.perf_counter()
        share, limit = profiles.workloads[workload], profiles.slos[slo]
        cells = tuple((int(i), int(j)) for i, j in np.argwhere(share > 0))
        rate_per_s = np.array([share[cell] * rate for cell in cells])
        offers = tuple(
            problem_builder.offer_of(
                demand.ThroughputProfile(workload, name, limit, profiles.grid, profiles.tables[slo][name]),
                *(price, profiles.grid, cells, rate_per_s),
            )
            for name, price in profiles.prices.items()
        )
        factor = slice_factor or profiles.slice_factor
        need = problem.Need(workload, limit, profiles.grid, cells, rate_per_s, offers, factor, headroom)
        question = problem.MixQuestion((need,), {})
        answer = optimizer.answer_mix(question, Budget(optimizer.work_of(deadline_s), time.perf_counter), gap=gap)
        seconds = time.perf_counter() - began_s
        about = {"workload": workload, "slo": slo, "rate": rate}
        if isinstance(answer, problem.MixAnswer) and (wrong := feasibility.violations(question, answer.mixes)):
            raise AssertionError(f"{about}: {'; '.join(wrong)}")
        yield Solved(about, question, answer, seconds)


def service_of(solved: Solved, profiles: ProfileSet) -> ReplayedService:
    """Simulated service with the GPU mix of a solved case."""
    assert isinstance(solved.answer, problem.MixAnswer)
    (need,), (found,) = solved.question.needs, solved.answer.mixes
    rows, columns = (np.array(places) for places in zip(*need.cells, strict=True))
    tokens = np.array(profiles.grid.output_tokens, dtype=np.float64)[columns]
    tables = profiles.tables[solved.about["slo"]]
    pools = tuple(
        ServingPool(
            offer.gpu_type,
            int(found.instances[g]),
            problem.in_flight_at_slo(tables[offer.gpu_type][rows, columns], need.slo.tpot_s, tokens),
            found.share[:, g],
        )
        for g, offer in enumerate(need.offers)
        if found.instances[g]
    )
    return ReplayedService(need.rate_per_s, tokens, need.slo.tpot_s, pools)
