"""The budget tree as arrays: which device draws through which limited domain, and with what fraction of its power."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.errors import ConfigError
from cluster.power import UNLIMITED_W, PowerTable
from power.domains.validation import mistakes_in


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
    below_first: BoolArray
    """Devices of any class but the first, shape (devices,)."""
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
        below_first=rank > 0,
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
    """Domains ordered so that every parent precedes its children."""
    feeds, waiting = table.feeds, np.bincount(table.feeds.child, minlength=len(table.domains))
    ready = [int(row) for row in np.flatnonzero(waiting == 0)]
    for parent in ready:  # grows during the iteration
        for child in feeds.child[feeds.parent == parent].tolist():
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    return ready
