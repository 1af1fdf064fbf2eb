"""Protection of a row: the hardware brake, and the heat that accumulates in the breaker."""

import math
from dataclasses import dataclass

from cluster.power import BreakerCurve

ROW_BREAKER = BreakerCurve(over=(1.1, 1.2, 1.4, 2.0), for_s=(600.0, 60.0, 20.0, 5.0))
"""Trip curve of a row on UPS: 10 % over for ten minutes, 20 % for a minute. Chosen between the published curves of rows
and UPS."""


@dataclass(frozen=True, slots=True)
class BrakeRules:
    """Power brake of GPU servers: all GPUs at one clock, by wire, overriding software."""

    at_share: float = 1.0
    """Fraction of the budget that triggers it, as the mean draw of one period."""
    acts_after_s: float = 5.0
    holds_for_s: float = 60.0
    mhz: float = 288.0
    fitted: bool = True
    """Whether the row has a brake; without one, seconds above the budget can be counted."""


class Brake:
    """Brake triggered by the meter and released after a fixed time."""

    def __init__(self, rules: BrakeRules, budget_w: float) -> None:
        self._rules, self.budget_w = rules, budget_w
        self.pulled = 0
        """Number of times triggered so far."""
        self._on_s, self._off_s = math.inf, math.inf

    def read(self, now_s: float, row_w: float) -> None:
        """Checks the mean of the period that ends now."""
        if self._off_s == math.inf and self._rules.fitted and row_w >= self._rules.at_share * self.budget_w:
            self.pulled += 1
            self._on_s = now_s + self._rules.acts_after_s
            self._off_s = self._on_s + self._rules.holds_for_s

    def changes_until(self, until_s: float) -> list[tuple[float, bool]]:
        """(instant, on) in order, each returned once."""
        changes = []
        if self._on_s <= until_s:
            changes.append((self._on_s, True))
            self._on_s = math.inf
        if self._off_s <= until_s:
            changes.append((self._off_s, False))
            self._off_s = math.inf
        return changes


class BreakerHeat:
    """Heat of the breaker: 1 opens it. It accumulates above the budget and dissipates below it."""

    def __init__(self, curve: BreakerCurve, budget_w: float) -> None:
        self._curve, self.budget_w = curve, budget_w
        self.share, self.highest_share = 0.0, 0.0

    def read(self, for_s: float, row_w: float) -> None:
        """Counts a period with this mean draw."""
        over = row_w / self.budget_w
        if over > 1.0:
            self.share += for_s / opens_after_s(self._curve, over)
            self.highest_share = max(self.highest_share, self.share)
        elif self.share:
            self.share *= math.exp(-for_s / self._curve.cooling_s)


def opens_after_s(curve: BreakerCurve, over: float) -> float:
    """Time for which the breaker tolerates this draw over budget, with the slope extended below the curve's first
    point.
    """
    points = [(math.log(o), math.log(s)) for o, s in zip(curve.over, curve.for_s, strict=True)]
    at = math.log(over)
    if at <= 0:
        return math.inf
    if at >= points[-1][0]:
        return curve.for_s[-1]
    after = next((n for n, (o, _) in enumerate(points) if o > at and n), len(points) - 1)
    (o0, s0), (o1, s1) = points[after - 1], points[after]
    return math.exp(s0 + (s1 - s0) * (at - o0) / (o1 - o0))
