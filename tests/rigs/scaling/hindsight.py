"""Scaling policies with what hindsight chooses, and figures as the benchmark writes them."""

from collections.abc import Mapping

from simulator.scaling import replay
from simulator.scaling.study import CONTENDERS, ReplayedPolicy

_TARGETS = (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
_MISS_COSTS = (20.0, 50.0, 99.0, 200.0, 500.0)
GRIDS: Mapping[str, tuple[float, ...]] = {
    "tonnage": _MISS_COSTS,
    "hpa": _TARGETS,
    "fixed": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5),
}
"""Parameters of each policy that hindsight chooses from."""


def tuned_in_hindsight(
    scenario: replay.LoadScenario, name: str, lead_s: float, outlook: replay.Outlook
) -> tuple[ReplayedPolicy, float]:
    """A policy with the parameter of its grid that has the lowest J on the very days that it is scored on, and that."""
    found = []
    for parameter in GRIDS[name]:
        run = replay.replay(scenario, CONTENDERS[name].of(parameter, scenario), lead_s, outlook)
        found.append((ReplayedPolicy(name, run, replay.score(scenario, run, lead_s)), parameter))
    return min(found, key=lambda each: each[0].score.j)


def record_of(
    scenario: replay.LoadScenario, lead_s: float, result: ReplayedPolicy, tuned: float | None = None
) -> dict[str, object]:
    """Figures of a replay. tuned: parameter that hindsight chose; None: the default."""
    figures = result.score
    return {
        "trace": scenario.trace,
        "lead_min": round(lead_s / 60.0, 3),
        "policy": result.policy,
        "tuned": tuned,
        "gpu_hours_ratio": round(figures.gpu_hours_ratio, 4),
        "shortfall_ratio": round(figures.shortfall_ratio, 6),
        "j": round(figures.j, 4),
        "violation_minutes_pct": round(figures.violation_minutes_pct, 3),
        "direction_changes_per_day": round(figures.direction_changes_per_day, 1),
    }
