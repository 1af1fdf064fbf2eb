"""Remaining power headroom during planning: devices that may start at their useful floor without reducing others."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import UNLIMITED_W, PowerTable
from cluster.snapshot import Snapshot
from cluster.workloads import WHOLE_GPU_MILLI

Path = tuple[tuple[int, float], ...]
"""(domain, fraction of the draw that it must be able to carry), by domain."""

_MW = 1000.0
"""Milliwatts per watt. Power is counted in whole milliwatts here, so that charges and returns cancel exactly."""


def paths_of(power: PowerTable) -> Callable[[int], Path]:
    """Function from a domain to every domain that it draws through, itself included.

    As `power.tree.reach_of`, one domain at a time. Parts add up over parallel feeds and are capped at 1. The
    feeds must have no loop.
    """
    feeds = power.feeds
    parents: dict[int, list[tuple[int, float]]] = {}
    for child, parent, share in zip(feeds.child.tolist(), feeds.parent.tolist(), feeds.share.tolist(), strict=True):
        parents.setdefault(child, []).append((parent, share))

    @cache
    def uncut(domain: int) -> Path:
        total = {domain: 1.0}
        for parent, share in parents.get(domain, ()):
            for above, part in uncut(parent):
                total[above] = total.get(above, 0.0) + share * part
        return tuple(sorted(total.items()))

    return lambda domain: tuple((above, min(part, 1.0)) for above, part in uncut(domain) if part > 0)


class PowerFloors:
    """Headroom of every limit while a plan is made; it falls when a device gets its first pod.

    A device that works needs its useful floor. Its present draw is part of its domain's draw, so only the rest of its
    floor is taken from the headroom. Pods and devices cannot be matched by name, so the devices of a node that draw
    most are assumed to hold its pods. Devices that opted out, and nodes whose agent never reported, count in the
    headroom at their maximum draw: starting work there takes nothing more. Pods without GPUs take nothing.
    """

    # 20,000 nodes with 8 GPUs each: 0.2 s to create, tens of microseconds per pod.

    def __init__(self, snapshot: Snapshot, power: PowerTable) -> None:
        """Counts the running pods: devices that hold pods reserve their floors even where they draw less now."""
        domains, path_of = power.domains, paths_of(power)
        names = [
            name
            for name in power.headroom_w
            if (row := domains.names.row(name)) is not None and domains.budget_w[row] < UNLIMITED_W
        ]
        self.limits = tuple(names)
        """Names of the domains with a budget and known headroom."""
        self._left_mw = np.array([round(power.headroom_w[name] * _MW) for name in names], dtype=np.int64)
        self.domain_of_limit = np.array([domains.names.row(name) for name in names], dtype=np.int64)
        """Shape (limits,): rows of the domain table."""
        number = {domain: limit for limit, domain in enumerate(self.domain_of_limit.tolist())}
        node_domain = [domains.names.row(name) for name in snapshot.nodes.names]
        found: dict[Path, int] = {}
        self.place_of = np.full(len(node_domain), -1, dtype=np.int64)
        """Shape (nodes,): nodes of one place draw through the same limits; -1: through none."""
        for node, domain in enumerate(node_domain):
            path = () if domain is None else path_of(domain)
            limited = tuple((number[above], part) for above, part in path if above in number)
            if limited:
                self.place_of[node] = found.setdefault(limited, len(found))
        self.paths: tuple[Path, ...] = tuple(found)
        """Per place: (limit, part) of each limit that it draws through."""
        self._limit_at, self._part_at = _padded(self.paths)
        self._rise_mw = _rises_mw(snapshot, power, node_domain)
        self._held = np.zeros(len(node_domain), dtype=np.int64)
        self._next_mw: dict[int, IntArray] = {}
        self._at_place: FloatArray | None = None
        self.follow(np.arange(len(node_domain)), held_devices(snapshot.free().gpu_milli, snapshot.nodes.gpus))

    @classmethod
    def of(cls, snapshot: Snapshot) -> "PowerFloors | None":
        """None where no headroom is published: power then refuses nothing."""
        power = snapshot.power
        return cls(snapshot, power) if power is not None and power.headroom_w else None

    def headroom_w(self, limit: int) -> float:
        """Remaining power of a limit, in watts."""
        return float(self._left_mw[limit]) / _MW

    def follow(self, nodes: Sequence[int] | IntArray, held: IntArray) -> None:
        """Sets the number of allocated devices of these nodes. held: shape (len(nodes),)."""
        for node, now in zip(np.asarray(nodes).tolist(), held.tolist(), strict=True):
            before = int(self._held[node])
            if before == now:
                continue
            self._held[node] = now
            for extra, next_mw in self._next_mw.items():
                next_mw[node] = self._rise(node, now + extra) - self._rise(node, now)
            self._charge(node, self._rise(node, before), self._rise(node, now))

    def _charge(self, node: int, before_mw: int, now_mw: int) -> None:
        place = int(self.place_of[node])
        if place < 0 or before_mw == now_mw:
            return
        for limit, part in self.paths[place]:
            self._left_mw[limit] -= round(part * now_mw) - round(part * before_mw)
        self._at_place = None

    def _rise(self, node: int, held: int) -> int:
        return int(self._rise_mw[node, min(held, self._rise_mw.shape[1] - 1)])

    def need_w(self, node: int, extra: int) -> float:
        """Power at the feed, in watts, that `extra` more working devices of a node take from the headroom."""
        held = int(self._held[node])
        return (self._rise(node, held + extra) - self._rise(node, held)) / _MW

    def left_w(self, node: int) -> float:
        """Power at the feed, in watts, that may still start on a node: the minimum over its limits.

        Infinite without limits.
        """
        place = int(self.place_of[node])
        return np.inf if place < 0 else float(self._left_at_places()[place]) / _MW

    def bears(self, node: int, held: int) -> bool:
        """Whether a node may have `held` allocated devices instead of its present number."""
        return self._rise(node, held) - self._rise(node, int(self._held[node])) <= self.left_w(node) * _MW

    def tightest(self, node: int) -> str:
        """Limit that leaves least for a node. Raises ValueError for a node that draws through none."""
        path = self.paths[int(self.place_of[node])] if self.place_of[node] >= 0 else ()
        return self.limits[min(path, key=lambda one: self._left_mw[one[0]] / one[1])[0]]

    def allows(self, extra: int) -> BoolArray:
        """Where `extra` more devices may start to work, shape (nodes,). False wherever a limit is short already."""
        if not extra:
            return np.ones(len(self.place_of), dtype=np.bool_)
        left = np.append(self._left_at_places(), np.inf)[self.place_of]
        if extra not in self._next_mw:
            nodes, widest = np.arange(len(self._held)), self._rise_mw.shape[1] - 1
            after = self._rise_mw[nodes, np.minimum(self._held + extra, widest)]
            self._next_mw[extra] = after - self._rise_mw[nodes, np.minimum(self._held, widest)]
        allowed: BoolArray = self._next_mw[extra] <= left
        return allowed

    def _left_at_places(self) -> FloatArray:
        """Shape (places,), milliwatts at the feed. Rounded down, so that parts never add up to more."""
        if self._at_place is None:
            left = self._left_mw[self._limit_at] / self._part_at
            self._at_place = np.floor(left.min(axis=1)) if len(left) else np.zeros(0)
        return self._at_place


def held_devices(free_milli: IntArray, gpus: IntArray) -> IntArray:
    """Number of devices of each node that hold a pod, or part of one; shape (nodes,).

    free_milli: shape (nodes, width), thousandths left of each device. gpus: shape (nodes,).
    """
    there = np.arange(free_milli.shape[1]) < gpus[:, None]
    return np.asarray((there & (free_milli < WHOLE_GPU_MILLI)).sum(axis=1), dtype=np.int64)


def _padded(paths: Sequence[Path]) -> tuple[IntArray, FloatArray]:
    """Limits and parts of each place, both of shape (places, longest path); shorter paths repeat their first entry."""
    longest = max((len(path) for path in paths), default=0)
    full = [path + path[:1] * (longest - len(path)) for path in paths]
    shape = (len(paths), longest)
    limit = np.array([[one for one, _ in path] for path in full], dtype=np.int64).reshape(shape)
    return limit, np.array([[part for _, part in path] for path in full], dtype=np.float64).reshape(shape)


def _rises_mw(snapshot: Snapshot, power: PowerTable, node_domain: Sequence[int | None]) -> IntArray:
    """Milliwatts at the feed between a node's present draw and its need with its first k devices at their floors.

    Shape (nodes, widest node's GPUs + 1), ascending in k. A GPU that the node's agent did not report counts like the
    node's most expensive one.
    """
    devices, draw_w = power.devices, power.readings.draw_w
    rise_w = (devices.floor_w - np.maximum(draw_w, devices.idle_w)) * (1 + devices.overhead_share)
    rise_mw = np.ceil(np.where(devices.managed, np.maximum(rise_w, 0.0), 0.0) * _MW).astype(np.int64)
    of_domain: dict[int, list[int]] = {}
    for device in np.argsort(rise_mw, kind="stable").tolist():
        of_domain.setdefault(int(devices.domain[device]), []).append(int(rise_mw[device]))
    widest = int(snapshot.nodes.gpus.max(initial=0))
    made = np.zeros((len(node_domain), widest + 1), dtype=np.int64)
    for node, domain in enumerate(node_domain):
        rises = of_domain.get(-1 if domain is None else domain)
        if rises:
            each = (rises + [rises[-1]] * widest)[:widest]
            made[node, 1:] = np.cumsum(each)
    return made
