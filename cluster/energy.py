"""Energy: what power costs over time in dollars and carbon dioxide, what a service counts it for, and deferred work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class PowerPrice:
    """Price and carbon intensity of power from an instant on, until that of the next."""

    from_s: float
    dollars_per_kwh: float = 0.0
    grams_per_kwh: float = 0.0
    """Grams of carbon dioxide, or what warms as much."""


def price_at(series: Sequence[PowerPrice], at_s: float) -> PowerPrice:
    """The one of a series, sorted by instants, that holds at an instant; before its first that, of an empty one 0."""
    return next((each for each in reversed(series) if each.from_s <= at_s), (*series, PowerPrice(at_s))[0])


@dataclass(frozen=True, slots=True)
class Objective:
    """What a service's mix is to have little of, each with its value in dollars."""

    dollars: float = 1.0
    kwh: float = 0.0
    kg_co2: float = 0.0

    def of_energy(self, price: PowerPrice) -> float:
        """Dollars that a kWh counts, without what is paid for it."""
        return self.kwh + self.kg_co2 * price.grams_per_kwh / 1000


@dataclass(frozen=True, slots=True)
class DeferredWork:
    """Requests that are all to be answered by a deadline, and none at once."""

    requests: float
    """All of them; `done`: those that were answered."""
    deadline_s: float
    most_per_s: float
    begin_s: float = 0.0
    done: float = 0.0

    def rate_at(self, at_s: float, changes_s: Sequence[float], value_at: Callable[[float], float]) -> float:
        """Requests per second to answer now, so that all are by the deadline, where a request costs the least.

        Each step between two changes has one cost, and the cheapest are filled first, of equal ones the earliest; the
        step that takes the last of them has a lower rate. After the deadline, what is left is answered at once.
        changes_s: instants at which the cost changes. value_at: the cost at an instant.
        """
        left = self.requests - self.done
        if left <= 0 or at_s < self.begin_s:
            return 0.0
        edges = sorted({at_s, self.deadline_s, *(each for each in changes_s if at_s < each < self.deadline_s)})
        for begin_s, end_s in sorted(pairwise(edges), key=lambda step: (value_at(step[0]), step[0])):
            answered = min(left, self.most_per_s * (end_s - begin_s))
            left -= answered
            if begin_s == at_s < self.deadline_s:
                return answered / (end_s - begin_s)
        return self.most_per_s
