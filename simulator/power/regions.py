"""Synthetic fleets of services that peak at different hours, the same for the same seed."""

from collections.abc import Sequence

import numpy as np

from simulator.power.demand import RateCurve
from simulator.power.row_fleet import Service, shifted

REGION_HOURS = (0.0, 8.0, 16.0)
"""Time offsets of users in the Americas, in Asia, and in Europe: a third of a day apart."""
REGION_SHARES = (0.5, 0.3, 0.2)
"""Fractions of services per region. Chosen: uneven, since with equal regions the load of the whole fleet would be
flat."""
WEEK_H = 168.0
SIZE_EXPONENT = 0.7
"""Exponent of the sizes: the n-th largest service has 1 / n ** this of the servers of the largest. Chosen: the largest
of 24 services has a tenth of the servers."""


def zones(curve: RateCurve, count: int, servers: int) -> tuple[Service, ...]:
    """Equal services, each peaking later than the previous one by the same time, around the day."""
    each = servers // count
    return tuple(Service(f"s{n}", shifted(curve, 24 * n / count), each) for n in range(count))


def regions(curves: Sequence[RateCurve], count: int, servers: int, seed: int) -> tuple[Service, ...]:
    """Services of unequal size, each with users in one region, in random order of arrival at the fleet.

    Each follows one of the curves, of the same or the other week: hours and weekdays recur, while single surges do not
    coincide.
    """
    chance = np.random.default_rng(seed)
    sizes = _sizes(count, servers)
    made = []
    for n in chance.permutation(count).tolist():
        region = int(chance.choice(len(REGION_HOURS), p=REGION_SHARES))
        curve = curves[int(chance.integers(len(curves)))]
        weeks = int(chance.integers(max(1, round(curve.for_s / 3600 / WEEK_H))))
        made.append(Service(f"s{n:02d}", shifted(curve, REGION_HOURS[region] + weeks * WEEK_H), sizes[n]))
    return tuple(made)


def _sizes(count: int, servers: int) -> list[int]:
    """Number of servers of each service, the largest first; at least one, together all there are."""
    weight = 1.0 / np.arange(1, count + 1) ** SIZE_EXPONENT
    exact = weight / weight.sum() * (servers - count)
    sizes = np.floor(exact).astype(int)
    for n in np.argsort(sizes - exact, kind="stable")[: servers - count - int(sizes.sum())]:
        sizes[n] += 1
    return [int(size) + 1 for size in sizes]
