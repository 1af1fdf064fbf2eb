"""The budget tree as arrays: which device draws through which limited domain, with what part of its watts."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.errors import ConfigError
from cluster.power import UNLIMITED_W, PowerTable
from power.domains.validation import mistakes_in


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """What never changes between two decisions: made once per power table, used thousands of times.

    Only domains with a budget are kept; they are called limits, numbered 0..limits-1.
    """

    table: PowerTable
    limit: IntArray
    """Shape (limits,): the row of each in the domain table."""
    budget_w: FloatArray
    """Shape (limits,)."""
    other_w: FloatArray
    """Shape (limits,): worst case of what is drawn through it by no device: servers' CPUs and fans, switches."""
    path_device: IntArray
    """Shape (paths,): a path is a device with a limit that it draws through."""
    path_limit: IntArray
    path_share: FloatArray
    """Part of the device's watts that the limit must be able to carry, in 0..1."""
    burden: FloatArray
    """Shape (devices,): watts at the limits, at worst, per watt of cap: overshoot, fans and conversion; ≥ 1."""
    overhead: FloatArray
    """Shape (devices,): watts at the limits per watt that the device draws; ≥ 1."""
    rank: IntArray
    """Shape (devices,): position of the device's class when classes are served in order, 0 first."""
    below_first: BoolArray
    """Shape (devices,): who is of another class than the first."""
    everyone: BoolArray
    nobody: BoolArray
    only_share: FloatArray | None
    """Shape (devices,): `path_share`, where there is one limit and every device draws through it once, as in a row."""
    only_overhead: FloatArray | None
    only_burden: FloatArray | None
    """Shape (1, devices): the same times `overhead` and `burden`."""

    @property
    def limits(self) -> int:
        return len(self.limit)

    @property
    def devices(self) -> int:
        return len(self.burden)

    def through(self, watts: FloatArray) -> FloatArray:
        """Watts through each limit, shape (limits,), of watts at the feed per device, shape (devices,)."""
        if self.only_share is not None:
            return np.array([np.dot(self.only_share, watts)])
        carried = np.bincount(self.path_limit, self.path_share * watts[self.path_device], self.limits)
        return np.asarray(carried, dtype=np.float64)

    def drawn(self, draw_w: FloatArray) -> FloatArray:
        """Watts through each limit, shape (limits,), of what devices draw."""
        if self.only_overhead is not None:
            return np.asarray(self.only_overhead.dot(draw_w))
        return self.through(self.overhead * draw_w)

    def at_worst(self, cap_w: FloatArray) -> FloatArray:
        """Watts through each limit, shape (limits,), that devices may draw under these caps."""
        if self.only_burden is not None:
            return np.asarray(self.only_burden.dot(cap_w))
        return self.through(self.burden * cap_w)

    def where_negative(self, of: FloatArray) -> BoolArray:
        """Devices that draw through a limit at which this is negative, shape (devices,); of: shape (limits,)."""
        if self.only_share is not None:
            return self.everyone if of[0] < 0 else self.nobody
        return self.least(of) < 0

    def least(self, of: FloatArray) -> FloatArray:
        """For each device the least value among its limits, shape (devices,); infinity where it has none."""
        if self.only_share is not None:
            return np.full(self.devices, of[0])
        made = np.full(self.devices, np.inf)
        np.minimum.at(made, self.path_device, of[self.path_limit])
        return made


def tree_of(table: PowerTable) -> Tree:
    """Raises ConfigError with every mistake in the table."""
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
    burden = (1 + devices.overshoot_share) * overhead
    return Tree(
        table=table,
        limit=limit,
        budget_w=table.domains.budget_w[limit],
        other_w=(reach.T @ table.domains.other_w)[limit],
        path_device=device,
        path_limit=through,
        path_share=share,
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
    """Part of each domain's draw that each domain must be able to carry, shape (domains, domains); 1 on the diagonal.

    Parts add up over parallel feeds, and are cut at 1: a domain draws its watts once, whichever way they come. A rack
    with two feeds that can each carry it whole therefore counts whole on each feed, and once where the feeds meet.
    """
    domains, feeds = len(table.domains), table.feeds
    reach = np.eye(domains)
    for child in _roots_first(table):
        for edge in np.flatnonzero(feeds.child == child):
            reach[child] += feeds.share[edge] * reach[feeds.parent[edge]]
    return np.minimum(reach, 1.0)


def _roots_first(table: PowerTable) -> list[int]:
    """Domains in an order in which every parent comes before its children."""
    feeds, waiting = table.feeds, np.bincount(table.feeds.child, minlength=len(table.domains))
    ready = [int(row) for row in np.flatnonzero(waiting == 0)]
    for parent in ready:  # grows while it is walked
        for child in feeds.child[feeds.parent == parent].tolist():
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    return ready
