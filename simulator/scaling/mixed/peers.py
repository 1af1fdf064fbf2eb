"""Rival policies on a mixed fleet: an HPA on one type, an HPA on a static mix, a fixed mix, and perfect foresight."""

import math
from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.errors import ConfigError, Mistake
from cluster.plans import Reason
from placement.mix.heuristics import best_single_type
from simulator.scaling.fleet import Leads
from simulator.scaling.mixed.accounting import Account, MixRun, account
from simulator.scaling.mixed.capacity import Capacity
from simulator.scaling.mixed.service import Counts, MixedService
from simulator.scaling.replay import Policy, ReplaySettings, Scenario, replay
from simulator.scaling.rival_rules import Hpa

LEVEL_STEP = 0.01
"""Relative distance of the rates at which perfect foresight asks for mixes; each rate is rounded down."""
MOST_UNITS = 100_000
HPA_TARGET = 0.7
"""Fraction of a unit's profiled throughput that the HPAs aim at."""


@dataclass(frozen=True, slots=True)
class Units:
    """Fleet of a policy that knows one number: a row of instances for each number of units."""

    load: float
    """Requests per second that one unit serves at its profiled throughput."""
    whole: Counts
    """Instances of `whole_units` units."""
    whole_units: int
    most: Counts
    """Most instances of each type."""

    def counts(self, units: int) -> Counts:
        """Instances of that many units, rounded up, as far as there is stock."""
        shares = (math.ceil(count * units / self.whole_units - 1e-9) for count in self.whole)
        return tuple(min(count, most) for count, most in zip(shares, self.most, strict=True))


def single_type(fleet: MixedService, peak_rate: float) -> tuple[str, Units]:
    """The one type that serves the peak within the SLO for the fewest dollars, with unlimited stock of it."""
    need = fleet.need(peak_rate)
    mix = best_single_type(need, {})
    if mix is None:
        raise ConfigError(Mistake(fleet.service.name, "no GPU type alone serves all requests within the SLO"))
    offer = need.offers[int(mix.instances.argmax())]
    one = tuple(int(name == offer.gpu_type) for name in fleet.types)
    return offer.gpu_type, Units(peak_rate / float(offer.load.sum()), one, 1, tuple(MOST_UNITS * n for n in one))


def static_mix(fleet: MixedService, peak_rate: float) -> Units:
    """The mix for the peak, scaled as a whole: as many units as it has instances, of the same load each."""
    whole = fleet.counts(peak_rate)
    number = sum(whole)
    inventory = (each.inventory for each in fleet.fleet.gpu_types)
    most = tuple(MOST_UNITS if held is None else held for held in inventory)
    return Units(Capacity(fleet, raw=True).highest(whole) / number, whole, number, most)


def run_of(scenario: Scenario, units: Units, policy: Policy, lead_s: float) -> MixRun:
    """A policy that scales these units."""
    in_units = Scenario(
        scenario.trace, scenario.step_s, scenario.start_s, scenario.load / units.load,
        scenario.trained / units.load, scenario.unit * units.load,
    )  # fmt: skip
    settings = ReplaySettings(max_replicas=MOST_UNITS)
    run = replay(in_units, policy, Leads((lead_s,)), lambda _: None, settings)
    return MixRun(_rows(units, run.wanted), _rows(units, run.ready))


def hpa(scenario: Scenario, target: float = HPA_TARGET) -> Policy:
    return Hpa(target, step_s=scenario.step_s)


def fixed_run(scenario: Scenario, counts: Counts) -> MixRun:
    """The same instances at all times, ready from the beginning."""
    rows: IntArray = np.tile(np.array(counts, dtype=np.int64), (len(scenario.load), 1))
    return MixRun(rows, rows)


def foresight(scenario: Scenario, fleet: MixedService, lead_s: float, *, whole: bool = False) -> Account:
    """Least dollars of any policy that misses nothing with this lead time: a bound that none may reach.

    An instance that is ready at one of the next steps within the lead time is billed now, so those that are billed now
    hold the highest of these loads, and cost at least the proven bound of the cheapest mix for it. It may be another
    mix at every step, at no cost.

    whole: with the price of the mix that is found in place of its bound, which is no limit on any policy any more.
    """
    highest = _highest_ahead(scenario.demand, round(lead_s / scenario.step_s))
    levels = np.floor(np.log(np.maximum(highest, 1e-6)) / LEVEL_STEP).astype(np.int64)
    price = {
        level: _least_price(fleet, math.exp(level * LEVEL_STEP), whole=whole) for level in np.unique(levels).tolist()
    }
    per_hour: FloatArray = np.array([price[level] for level in levels.tolist()])
    return account(scenario, per_hour, scenario.demand)


def _least_price(fleet: MixedService, rate_per_s: float, *, whole: bool) -> float:
    """Lower bound on the dollars per hour of a mix, or those of the one that is found; without limits of the stock
    where that does not hold the rate."""
    answer = fleet.mix(rate_per_s)
    if isinstance(answer, Reason):
        answer = fleet.mix(rate_per_s, {})
    if isinstance(answer, Reason):
        raise ConfigError(Mistake(f"{rate_per_s:.1f} requests/s", answer.words))
    return answer.cost_per_hour if whole else answer.certificate.bound


def _highest_ahead(load: FloatArray, steps: int) -> FloatArray:
    highest = load.copy()
    for ahead in range(1, min(steps, len(load) - 1) + 1):
        highest[:-ahead] = np.maximum(highest[:-ahead], load[ahead:])
    return highest


def _rows(units: Units, numbers: IntArray) -> IntArray:
    known = {number: units.counts(number) for number in np.unique(numbers).tolist()}
    return np.array([known[number] for number in numbers.tolist()], dtype=np.int64)
