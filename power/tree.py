"""The budget tree as arrays: which device draws through which limited domain, and with what fraction of its power."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.errors import ConfigError, Mistake
from cluster.power import UNLIMITED_W, BreakerCurve, PowerTable


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Data that stays constant between decisions: built once per power table, used thousands of times.

    Only domains with a budget are included; they are called limits and numbered 0..limits-1.
    """

    table: PowerTable
    limit: IntArray
    """Row of each limit in the domain table, shape (limits,)."""
    budget_w: FloatArray
    """Budgets, shape (limits,)."""
    other_w: FloatArray
    """Worst case of the power drawn through each limit by anything but devices (servers' CPUs and fans, switches);
    shape (limits,)."""
    path_device: IntArray
    """Device of each path, shape (paths,). A path is a pair of a device and a limit that it draws through."""
    path_limit: IntArray
    path_share: FloatArray
    """Fraction of the device's power that the limit must be able to carry, 0..1; shape (paths,)."""
    overshoot: FloatArray
    """Highest draw of a device that keeps a limit, per watt of it, shape (devices,); ≥ 1."""
    burden: FloatArray
    """Worst-case watts at the limits per watt of cap, shape (devices,): overshoot, fans and conversion; ≥ 1."""
    overhead: FloatArray
    """Watts at the limits per watt that the device draws, shape (devices,); ≥ 1."""
    rank: IntArray
    """Position of the device's class in the order in which classes are served, 0 first; shape (devices,)."""
    everyone: BoolArray
    nobody: BoolArray
    only_share: FloatArray | None
    """`path_share` where there is one limit and every device draws through it once, as in a row; shape (devices,). None
    otherwise."""
    only_overhead: FloatArray | None
    only_burden: FloatArray | None
    """The same times `overhead` and times `burden`, shape (1, devices) each."""

    @property
    def limits(self) -> int:
        return len(self.limit)

    @property
    def devices(self) -> int:
        return len(self.burden)

    def through(self, watts: FloatArray) -> FloatArray:
        """Watts through each limit, shape (limits,), for watts at the feed per device, shape (devices,)."""
        if self.only_share is not None:
            return np.array([np.dot(self.only_share, watts)])
        carried = np.bincount(self.path_limit, self.path_share * watts[self.path_device], self.limits)
        return np.asarray(carried, dtype=np.float64)

    def drawn(self, draw_w: FloatArray) -> FloatArray:
        """Watts through each limit, shape (limits,), for the draws of devices."""
        if self.only_overhead is not None:
            return np.asarray(self.only_overhead.dot(draw_w))
        return self.through(self.overhead * draw_w)

    def at_worst(self, cap_w: FloatArray) -> FloatArray:
        """Watts through each limit, shape (limits,), that devices may draw at worst under these caps."""
        if self.only_burden is not None:
            return np.asarray(self.only_burden.dot(cap_w))
        return self.through(self.burden * cap_w)

    def least(self, of: FloatArray) -> FloatArray:
        """Least value among the limits of each device, shape (devices,); infinity where it has none."""
        if self.only_share is not None:
            return of.repeat(self.devices)
        made = np.full(self.devices, np.inf)
        np.minimum.at(made, self.path_device, of[self.path_limit])
        return made


def tree_of(table: PowerTable) -> Tree:
    """The tree of a power table. Raises ConfigError with every error in the table."""
    if mistakes := mistakes_in(table):
        raise ConfigError(mistakes)
    reach = reach_of(table)
    limit = np.flatnonzero(table.domains.budget_w < UNLIMITED_W)
    device, through = np.nonzero(reach[table.devices.domain][:, limit] > 0)
    devices = table.devices
    ranks = np.array([each.rank for each in table.classes], dtype=np.int64)
    _, order = np.unique(ranks, return_inverse=True)
    share = reach[devices.domain[device], limit[through]]
    rank, everyone = order[devices.power_class], np.ones(len(devices), dtype=np.bool_)
    alone = len(limit) == 1 and np.array_equal(device, np.arange(len(devices.domain)))
    overhead = 1 + devices.overhead_share
    overshoot = 1 + devices.overshoot_share
    burden = overshoot * overhead
    return Tree(
        table=table,
        limit=limit,
        budget_w=table.domains.budget_w[limit],
        other_w=(reach.T @ table.domains.other_w)[limit],
        path_device=device,
        path_limit=through,
        path_share=share,
        overshoot=overshoot,
        burden=burden,
        overhead=overhead,
        rank=rank,
        everyone=everyone,
        nobody=~everyone,
        only_share=share if alone else None,
        only_overhead=(share * overhead)[None, :] if alone else None,
        only_burden=(share * burden)[None, :] if alone else None,
    )


def reach_of(table: PowerTable) -> FloatArray:
    """Fraction of each domain's draw that each domain must be able to carry, shape (domains, domains); 1 on the
    diagonal.

    Fractions add up over parallel feeds and are limited to 1, since a domain draws its power once, whichever feed
    carries it. A rack with two feeds that can each carry all of it therefore counts fully on each feed, and once where
    the feeds meet.
    """
    domains, feeds = len(table.domains), table.feeds
    reach = np.eye(domains)
    for child in _roots_first(table):
        for edge in np.flatnonzero(feeds.child == child):
            reach[child] += feeds.share[edge] * reach[feeds.parent[edge]]
    return np.minimum(reach, 1.0)


def _roots_first(table: PowerTable) -> list[int]:
    """Domains ordered so that every parent precedes its children; without those in a circle, and below one."""
    feeds, waiting = table.feeds, np.bincount(table.feeds.child, minlength=len(table.domains))
    ready = [int(row) for row in np.flatnonzero(waiting == 0)]
    for parent in ready:  # grows during the iteration
        for child in feeds.child[feeds.parent == parent].tolist():
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    return ready


def mistakes_in(table: PowerTable) -> tuple[Mistake, ...]:
    """Every error, in the order of the table. An empty result means that the arrays are consistent."""
    domains, d, feeds, names = table.domains, table.devices, table.feeds, table.domains.names
    references = (
        ("feeds.child", feeds.child, len(domains), 0),
        ("feeds.parent", feeds.parent, len(domains), 0),
        ("devices.domain", d.domain, len(domains), 0),
        ("devices.power_class", d.power_class, len(table.classes), 0),
        ("devices.gpu_type", d.gpu_type, len(table.gpu_types), 0),
        ("domains.curve", domains.curve, len(table.curves), -1),
    )
    dangling = tuple(
        Mistake(f"{place}[{entry}]", f"names row {int(column[entry])} of {rows}", "correct the reference")
        for place, column, rows, lowest in references
        for entry in np.flatnonzero((column < lowest) | (column >= rows)).tolist()
    )
    if dangling:  # nothing else can be checked before references are correct
        return dangling
    found: list[Mistake] = []
    for row in np.flatnonzero(~(domains.budget_w > 0)).tolist():
        problem = f"has a budget of {domains.budget_w[row]:g} W"
        found.append(Mistake(f"power domain {names[row]}", problem, "set a budget above 0 W, or omit it"))
    for row in np.flatnonzero(~(domains.other_w >= 0)).tolist():
        problem = f"assumes a draw of {domains.other_w[row]:g} W by equipment other than devices"
        found.append(Mistake(f"power domain {names[row]}", problem, "give 0 W or more"))
    classes = tuple(each.name for each in table.classes)
    for what, known in (("power domain", tuple(names)), ("power class", classes), ("device", tuple(d.names))):
        counts = Counter(known)
        twice = sorted(name for name, count in counts.items() if count > 1)
        found += [Mistake(f"{what} {name}", "is defined more than once", "rename one of them") for name in twice]
    for edge in np.flatnonzero(~((feeds.share > 0) & (feeds.share <= 1))).tolist():
        place = f"power domain {names[int(feeds.child[edge])]}, feed from {names[int(feeds.parent[edge])]}"
        found.append(Mistake(place, f"has a share of {feeds.share[edge]:g}", "set a share above 0 and at most 1"))
    circling, remedy = sorted(set(range(len(domains))) - set(_roots_first(table))), "remove one feed of the cycle"
    found += [Mistake(f"power domain {names[child]}", "draws through itself", remedy) for child in circling]
    rules: tuple[tuple[BoolArray, str, str], ...] = (
        (d.min_w > 0, "has no lowest limit above 0 W", "enter what the device reports"),
        (d.max_w >= d.min_w, "has a highest limit below its lowest", "enter what the device reports"),
        (d.default_w > 0, "has no default limit", "enter what the device reports"),
        ((d.floor_w >= d.min_w) & (d.floor_w <= d.max_w), "has a useful floor outside its limits", "move it inside"),
        (d.idle_w >= 0, "has a negative idle draw", "give 0 W or more"),
        (d.overshoot_share >= 0, "has a negative overshoot", "give 0 or more"),
        (d.overhead_share >= 0, "has a negative overhead", "give 0 or more"),
    )
    for holds, problem, remedy in rules:
        found += [Mistake(f"device {d.names[row]}", problem, remedy) for row in np.flatnonzero(~holds).tolist()]
    remedy = "copy the points from the breaker's data sheet, least load first"
    for row, curve in enumerate(table.curves):
        if why := _wrong_in(curve):
            found.append(Mistake(f"breaker curve {row}", why, remedy))
    return tuple(found)


def _wrong_in(curve: BreakerCurve) -> str:
    if len(curve.over) != len(curve.for_s) or not curve.over:
        return "needs as many times as loads, and at least one"
    if curve.over[0] <= 1 or any(b <= a for a, b in zip(curve.over, curve.over[1:], strict=False)):
        return "needs loads above 1, rising"
    if min(curve.for_s) <= 0 or any(b >= a for a, b in zip(curve.for_s, curve.for_s[1:], strict=False)):
        return "needs times above 0 s, falling"
    return "" if curve.cooling_s > 0 else "needs a cooling time above 0 s"
