"""The textbook model of a GPU mix: one binary per slice and type, on CBC with its defaults."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pulp

from placement.mix.problem import MixQuestion


@dataclass(frozen=True, slots=True)
class TextbookAnswer:
    cost_per_hour: float | None
    """Cost of the mix; None when no integer solution was found within the limit."""
    proven: bool
    seconds: float


def solve_textbook(question: MixQuestion, *, limit_s: float, clock: Callable[[], float]) -> TextbookAnswer:
    """Solution of a question with one service and without bursts, by the textbook model."""
    began = clock()
    (need,) = question.needs
    parts = need.slice_factor or 1
    model = pulp.LpProblem("textbook", pulp.LpMinimize)
    y = [model.add_variable(f"y_{g}", 0, cat=pulp.LpInteger) for g in range(len(need.offers))]
    x = {
        (b, s, g): model.add_variable(f"x_{b}_{s}_{g}", cat=pulp.LpBinary)
        for b in range(len(need.cells))
        for s in range(parts)
        for g, offer in enumerate(need.offers)
        if np.isfinite(offer.load[b])
    }
    model += pulp.lpSum(offer.price_per_hour * count for offer, count in zip(need.offers, y, strict=True))
    for b in range(len(need.cells)):
        for s in range(parts):
            model += pulp.lpSum(x[b, s, g] for g in range(len(need.offers)) if (b, s, g) in x) == 1
    for g, offer in enumerate(need.offers):
        load = pulp.lpSum(float(offer.load[b]) / parts * x[b, s, h] for b, s, h in x if h == g)
        model += load <= (1 - (need.headroom_share or 0.0)) * y[g]
        if offer.gpu_type in question.stock:
            model += y[g] <= question.stock[offer.gpu_type].holds(offer.footprint)
    model.solve(pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, timeLimit=limit_s))
    seconds = clock() - began
    # CBC reports "optimal" even when it stopped at the time limit; sol_status distinguishes the two.
    found = model.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    cost = float(pulp.value(model.objective)) if found else None
    return TextbookAnswer(cost, model.sol_status == pulp.LpSolutionOptimal, seconds)
