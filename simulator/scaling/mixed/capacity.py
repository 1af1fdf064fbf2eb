"""Request rate that running instances serve within the SLO, by the mix planner's own routing and headroom."""

from dataclasses import dataclass, field

from placement.budget import Budget
from placement.mix.optimizer import answer_mix
from placement.mix.problem import MixAnswer, MixQuestion
from placement.stock import Stock
from simulator.scaling.mixed.service import Counts, MixedService

PRECISION = 0.005
"""Relative precision to which a capacity is known; the served rate is the lower end."""
ROUTING_WORK = 2_000.0
"""Work for one routing, in simplex iterations; instances for which it finds none count as insufficient."""
_ANY_MIX = 0.99
"""Gap at which the search ends with the first mix that it finds: the instances exist, so their price does not
matter."""


@dataclass(slots=True)
class _Bracket:
    served: float = 0.0
    """Highest rate that is known to be served."""
    missed: float = float("inf")
    """Lowest rate that is known to be too much."""


@dataclass(slots=True, eq=False)
class Capacity:
    """Capacities of a service's instances. Every rate that was tried is remembered."""

    fleet: MixedService
    raw: bool = False
    """Without headroom: every instance counts with its profiled throughput."""
    _known: dict[Counts, _Bracket] = field(default_factory=dict)

    def served(self, counts: Counts, rate_per_s: float) -> float:
        """Part of the offered rate that these instances serve within the SLO.

        The router sheds what is beyond, the same fraction of every bucket.
        """
        known = self._known.setdefault(counts, _Bracket())
        if rate_per_s <= known.served or self._try(counts, known, rate_per_s):
            return rate_per_s
        return min(rate_per_s, self._narrowed(counts, known))

    def highest(self, counts: Counts) -> float:
        """Highest rate that these instances serve, within the precision."""
        known = self._known.setdefault(counts, _Bracket())
        rate = max(known.served, 1.0)
        while known.missed == float("inf"):
            self._try(counts, known, rate)
            rate *= 2
        return self._narrowed(counts, known)

    def _narrowed(self, counts: Counts, known: _Bracket) -> float:
        while known.missed - known.served > PRECISION * known.missed and known.missed > PRECISION:
            self._try(counts, known, (known.served + known.missed) / 2)
        return known.served

    def _try(self, counts: Counts, known: _Bracket, rate_per_s: float) -> bool:
        if rate_per_s >= known.missed:
            return False
        if rate_per_s <= 0 or self._is_routed(counts, rate_per_s):
            known.served = max(known.served, rate_per_s)
            return True
        known.missed = rate_per_s
        return False

    def _is_routed(self, counts: Counts, rate_per_s: float) -> bool:
        need = self.fleet.need(rate_per_s, raw=self.raw)
        stock = {name: Stock(count) for name, count in zip(self.fleet.types, counts, strict=True)}
        answer = answer_mix(MixQuestion((need,), stock), Budget(ROUTING_WORK), gap=_ANY_MIX)
        return isinstance(answer, MixAnswer)
