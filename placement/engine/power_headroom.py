"""Power headroom in placement: which nodes have the power for a pod, and which power domain suits its daily profile."""

from collections.abc import Mapping

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import PowerTable
from cluster.power_floors import PowerFloors, held_devices, paths_of
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.engine.ledger import Ledger

TIGHTNESS = 16
"""Exponent that makes a rise near the budget expensive. A rise of 1 W in a domain's expected peak weighs as the peak's
fraction of the budget to the power TIGHTNESS - 1: 35 times as much at 0.95 of a budget as at 0.75. Low exponents
stack services until the first budget is reached; high ones level peaks whatever a pod adds to them. Chosen: of 4, 8,
16 and 40, none was best on all of five synthetic and public profiles of request rates; 16 was never far behind."""
EVEN_SHARE = 0.05
"""Tolerance within which domains count as equal, so that the packing policy decides among them: a fraction of the price
of the pod's own highest hour in the cheapest domain. Chosen: wide tolerances let best fit stack pods until the
tolerance is passed."""


class PowerHeadroom:
    """Power headroom while a plan is made. Follows the packer's ledger, and is updated as pods start and stop.

    Hard limit: the useful floors of a pod's devices must fit the remaining headroom of every domain above the node.
    Preference: each service has a profile of expected power over the hours of a day or a week. The peak of a domain is
    that of the sum of its profiles, which is less than the sum of peaks where hours differ. A pod therefore goes where
    the expected peaks of the domains above rise least. A rise weighs more the nearer a peak is to its budget.
    """

    def __init__(self, snapshot: Snapshot, power: PowerTable) -> None:
        self.floors = PowerFloors(snapshot, power)
        hours = max((len(course) for course in power.courses.values()), default=1)
        # A profile of another length cannot be added to the others.
        self.courses: Mapping[str, FloatArray] = {n: one for n, one in power.courses.items() if len(one) == hours}
        self._budget_w = np.maximum(power.domains.budget_w[self.floors.domain_of_limit], 1.0)
        self._swing_w, self._even_w = _swings(snapshot, power)
        # Limits above each place and its parts of them, shape (places, longest path); unused entries have part 0.
        paths = self.floors.paths
        shape = len(paths), max((len(path) for path in paths), default=0)
        self._limit_at, self._part_at = np.zeros(shape, dtype=np.int64), np.zeros(shape)
        for place, path in enumerate(paths):
            for n, (limit, part) in enumerate(path):
                self._limit_at[place, n], self._part_at[place, n] = limit, part
        self._expected_w = np.tile(_at_rest_w(power, self.floors.limits)[:, None], (1, hours))
        # Nodes of one place whose GPUs have the same power range are one kind: a pod's peak is computed once per kind.
        rounded = np.stack([self.floors.place_of, self._swing_w.round().astype(np.int64)], axis=1)
        self._kinds, kind_of = np.unique(rounded, axis=0, return_inverse=True)
        self._kind_of: IntArray = kind_of.reshape(-1)
        self._mark = 0
        if self.courses:
            self._count_running(snapshot)

    def catch_up(self, ledger: Ledger) -> None:
        """Charges the floors of devices that got their first pod since the last call; returns those of emptied ones."""
        if ledger.mark == self._mark:
            return
        nodes = ledger.changed_since(self._mark)
        self.floors.follow(nodes, held_devices(ledger.gpu_milli[nodes], ledger.gpus[nodes]))
        self._mark = ledger.mark

    def allowed(self, shape: PodShape, devices: IntArray, ledger: Ledger) -> BoolArray:
        """Whether the headroom covers the floors of the devices on which the pod would be the first. Shape (nodes,).

        devices: shape (nodes,), the bit mask that it would take on each node.
        """
        self.catch_up(ledger)
        if shape.gpu_milli == WHOLE_GPU_MILLI or not shape.gpus:
            return self.floors.allows(shape.gpus)
        extra = np.zeros(len(devices), dtype=np.int64)
        for device in range(ledger.gpu_milli.shape[1]):
            extra += (devices >> device & 1) & (ledger.gpu_milli[:, device] == WHOLE_GPU_MILLI)
        allowed: BoolArray = np.ones(len(devices), dtype=np.bool_)
        for count in range(1, shape.gpus + 1):
            allowed &= (extra != count) | self.floors.allows(count)
        return allowed

    def preferred(self, shape: PodShape, owner: str, feasible: BoolArray) -> BoolArray | None:
        """Nodes, among the feasible ones, where the pod's daily profile fits best; None where profiles decide nothing.

        feasible: shape (nodes,). Nodes outside every power domain stay in, since nothing is known against them.
        """
        course = self.courses.get(owner)
        if course is None or not shape.gpus:
            return None
        there = np.bincount(self._kind_of[feasible], minlength=len(self._kinds)) > 0
        inside = there & (self._kinds[:, 0] >= 0)
        if not inside.any():
            return None
        kinds = np.flatnonzero(inside)
        limit, most_w = self._most_w(shape, kinds)
        budget_w = self._budget_w[limit]
        before = self._expected_w.max(axis=1)[limit] / budget_w
        after = (self._expected_w[limit] + most_w[:, :, None] * course).max(axis=2) / budget_w
        # Prices of the rises of all peaks above with the pod there, and of a rise by its own highest hour, shape
        # (kinds,), in watts weighted by `TIGHTNESS`: budget × (fraction after ** t - fraction before ** t).
        price = (budget_w * (after**TIGHTNESS - before**TIGHTNESS)).sum(axis=1)
        own = (most_w * course.max() * TIGHTNESS * before ** (TIGHTNESS - 1)).sum(axis=1)
        keep = self._kinds[:, 0] < 0
        keep[kinds[price <= price.min() + EVEN_SHARE * own[price.argmin()]]] = True
        return np.asarray(feasible & keep[self._kind_of], dtype=np.bool_)

    def _most_w(self, shape: PodShape, kinds: IntArray) -> tuple[IntArray, FloatArray]:
        """Limits above, and the most power above idle that the pod adds to each; both of shape (kinds, longest path).

        Entries past the end of a shorter path add nothing.
        """
        place = self._kinds[kinds, 0]
        most_w: FloatArray = self._part_at[place] * _gpus(shape) * self._kinds[kinds, 1][:, None]
        return self._limit_at[place], most_w

    def peak_share(self, shape: PodShape, owner: str, node: int) -> float | None:
        """Highest expected fraction of a budget above a node with such a pod there; None where no profile is known."""
        course = self.courses.get(owner)
        if course is None or not shape.gpus or self.floors.place_of[node] < 0:
            return None
        limit, most_w = self._most_w(shape, self._kind_of[node : node + 1])
        share = (self._expected_w[limit] + most_w[:, :, None] * course).max(axis=2) / self._budget_w[limit]
        return float(share[self._part_at[self.floors.place_of[node : node + 1]] > 0].max())

    def started(self, shape: PodShape, owner: str, node: int) -> None:
        """Counts a pod's expected power at its node from now on."""
        self._count(shape, owner, node, 1)

    def stopped(self, shape: PodShape, owner: str, node: int) -> None:
        """Stops counting it there. owner: the one with which it started."""
        self._count(shape, owner, node, -1)

    def _count(self, shape: PodShape, owner: str, node: int, sign: int) -> None:
        place = int(self.floors.place_of[node])
        if place < 0 or not shape.gpus or not self.courses:
            return
        course = self.courses.get(owner)
        watts = self._even_w[node] if course is None else self._swing_w[node] * course
        for limit, part in self.floors.paths[place]:
            self._expected_w[limit] += sign * _gpus(shape) * part * watts

    def _count_running(self, snapshot: Snapshot) -> None:
        """Counts all running pods, service by service: pod by pod, 60,000 would take a second."""
        pods = snapshot.pods
        gpus = np.array([_gpus(shape) for shape in pods.shapes])[pods.shape]
        rows = np.flatnonzero((pods.node != PENDING) & (gpus > 0))
        rows = rows[self.floors.place_of[pods.node[rows]] >= 0]
        number = {owner: n for n, owner in enumerate(self.courses)}
        owner_of = np.array([number.get(pods.owner[row], -1) for row in rows.tolist()], dtype=np.int64)
        for n, course in enumerate((*self.courses.values(), None)):
            own = rows[owner_of == (-1 if course is None else n)]
            node = pods.node[own]
            watts = gpus[own] * (self._even_w if course is None else self._swing_w)[node]
            at_place_w = np.bincount(self.floors.place_of[node], watts, len(self.floors.paths))
            at_limit_w = np.bincount(
                self._limit_at.ravel(), (self._part_at * at_place_w[:, None]).ravel(), len(self._budget_w)
            )
            self._expected_w += at_limit_w[:, None] * (1.0 if course is None else course)


def _gpus(shape: PodShape) -> float:
    return shape.total_gpu_milli / WHOLE_GPU_MILLI


def _swings(snapshot: Snapshot, power: PowerTable) -> tuple[FloatArray, FloatArray]:
    """Range from idle to the highest limit, and the draw of a GPU without a profile, in watts per node and GPU.

    Both at the feed. The draw without a profile is what the node's busy devices draw now, and at least the useful
    floor.
    """
    devices, draw_w = power.devices, power.readings.draw_w
    count = np.bincount(devices.domain, minlength=len(power.domains))

    def mean(watts: FloatArray) -> FloatArray:
        total = np.bincount(devices.domain, watts * (1 + devices.overhead_share), len(power.domains))
        return np.asarray(total / np.maximum(count, 1), dtype=np.float64)

    swing_w = mean(np.where(devices.managed, devices.max_w - devices.idle_w, 0.0))
    floor_w = mean(np.where(devices.managed, devices.floor_w - devices.idle_w, 0.0))
    drawn_w = mean(np.where(devices.managed, np.maximum(draw_w - devices.idle_w, 0.0), 0.0))
    domain = [power.domains.names.row(name) for name in snapshot.nodes.names]
    row = np.array([-1 if one is None else one for one in domain], dtype=np.int64)
    held = held_devices(snapshot.free().gpu_milli, snapshot.nodes.gpus)
    of_node = [np.append(column, 0.0)[row] for column in (swing_w, floor_w, drawn_w)]
    per_busy_w = of_node[2] * np.append(count, 0)[row] / np.maximum(held, 1)
    return of_node[0], np.clip(per_busy_w, of_node[1], np.maximum(of_node[0], of_node[1]))


def _at_rest_w(power: PowerTable, limits: tuple[str, ...]) -> FloatArray:
    """Power through each limit with no GPU allocated, in watts.

    Managed devices count at idle, opted-out ones and all else at their maximum.
    """
    devices = power.devices
    rest_w = np.where(devices.managed, devices.idle_w, np.maximum(devices.max_w, devices.default_w))
    own_w = power.domains.other_w + np.bincount(
        devices.domain, rest_w * (1 + devices.overhead_share), len(power.domains)
    )
    number = {power.domains.names.row(name): limit for limit, name in enumerate(limits)}
    path_of, made = paths_of(power), np.zeros(len(limits))
    for domain in np.flatnonzero(own_w).tolist():
        for above, part in path_of(domain):
            if above in number:
                made[number[above]] += part * own_w[domain]
    return made
