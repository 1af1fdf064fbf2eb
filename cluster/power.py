"""Power: the tree of budgets, the devices that draw from it, what was read of them, and the leases they hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.actions import SetPowerLease
from cluster.arrays import Array, BoolArray, FloatArray, IntArray, Names

UNLIMITED_W = 1e15
"""The budget of a domain that only groups others. A number, so that records can hold it (JSON has no infinity)."""

NEVER_S = -1e15
"""The instant of what was never read: older than any limit on age, and still a number."""

PHASE_UNKNOWN = -1
PHASE_IDLE = 0
"""No work: a cap costs nothing and saves nothing."""
PHASE_MEMORY_BOUND = 1
"""Token generation (decode): draws less than the limit and hardly slows down under a cap, down to a cliff."""
PHASE_COMPUTE_BOUND = 2
"""Prompts (prefill) and training steps: draws up to the limit and slows down with it."""


@dataclass(frozen=True, slots=True)
class BreakerCurve:
    """How long a breaker stands how much more than its rating; the same load for longer opens it.

    Points in rising `over`; between them time falls log-log, beyond the last one it is that of the last one.
    """

    over: tuple[float, ...]
    """Draw divided by budget, each > 1, rising: 1.1 is 10 % over."""
    for_s: tuple[float, ...]
    """Seconds until it opens at that draw, falling."""
    cooling_s: float = 300.0
    """Time constant with which the heat of an overload leaves it when the draw is at the budget or below."""


@dataclass(frozen=True, slots=True)
class PowerClass:
    """A class of service: who gives watts first."""

    name: str
    rank: int
    """0 is served first; a class is taken down to its useful floor before one of lower rank number is touched."""
    weight: float = 1.0
    """What a second lost by this class weighs against one lost by others, where room for spikes is divided."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainTable:
    """Power domains: sites, rows, racks, PDUs, nodes. One entry per domain, in the order of `names`."""

    names: Names
    kind: tuple[str, ...]
    """`site`, `row`, `rack`, `pdu`, `node`; for people. What devices are in is a node: its agent holds their leases."""
    budget_w: FloatArray
    """What may be drawn through it for ever; UNLIMITED_W where it only groups."""
    other_w: FloatArray
    """Worst case of what is drawn in it besides devices and inner domains: CPUs, fans, switches, unmanaged machines."""
    curve: IntArray
    """Index into the power table's `curves`; -1: nothing is known, so nothing over the budget is tolerated."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class FeedTable:
    """Which domain draws through which: the edges of the tree, or of the graph where racks are fed twice."""

    child: IntArray
    """Shape (feeds,); rows of the domain table."""
    parent: IntArray
    share: FloatArray
    """How much of the child's draw this parent must be able to carry at worst, in 0..1.

    1 for a single feed, and for each of two feeds when either must carry the rack alone after the other failed.
    """

    def __len__(self) -> int:
        return len(self.child)


@dataclass(frozen=True, slots=True, eq=False)
class PowerDeviceTable:
    """Devices that draw watts: GPUs, or whole servers where limits are set per server."""

    names: Names
    """UUIDs: an index changes when a device falls off the bus."""
    domain: IntArray
    """The node that it is in, a row of the domain table."""
    gpu_type: IntArray
    """Index into the power table's `gpu_types`."""
    power_class: IntArray
    """Index into the power table's `classes`."""
    min_w: FloatArray
    """The lowest limit that the device accepts (discovered, not assumed)."""
    max_w: FloatArray
    """The highest limit that the device accepts."""
    default_w: FloatArray
    """The limit after a reboot, a reset or a driver reload."""
    previous_w: FloatArray
    """The limit that was found before Tonnage set one: what stopping and uninstalling restore."""
    floor_w: FloatArray
    """The useful floor, min_w..max_w: below it the work of its class is hardly worth its watts (before the cliff)."""
    idle_w: FloatArray
    """What it draws without work."""
    overshoot_share: FloatArray
    """By how much the draw passes the limit at worst, as a share of the limit (limiters react late and oscillate)."""
    overhead_share: FloatArray
    """Watts that fans and conversion add per watt of the device."""
    managed: BoolArray
    """False: opted out. Its limit is never touched, and it counts at its worst case."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class PowerReadings:
    """What was last heard of each device and each meter, each with its own instant."""

    at_s: FloatArray
    """Shape (devices,): when the draw was measured, NEVER_S where it never was."""
    draw_w: FloatArray
    """Shape (devices,): mean draw since the reading before."""
    cap_w: FloatArray
    """Shape (devices,): the limit that the device enforces, read back from it; 0 where that cannot be read."""
    sequence: IntArray
    """Shape (devices,): the newest lease that the device's agent has accepted and enforced, -1 where there is none."""
    phase: IntArray
    """Shape (devices,): PHASE_… as far as the agent can tell."""
    meter_at_s: FloatArray
    """Shape (domains,): when a meter of the whole domain was read, NEVER_S where there is none."""
    meter_w: FloatArray
    """Shape (domains,)."""


def never_read(devices: int, domains: int) -> PowerReadings:
    """Before anything was heard of so many devices and so many domains."""
    return PowerReadings(
        at_s=np.full(devices, NEVER_S),
        draw_w=np.zeros(devices),
        cap_w=np.zeros(devices),
        sequence=np.full(devices, -1),
        phase=np.full(devices, PHASE_UNKNOWN),
        meter_at_s=np.full(domains, NEVER_S),
        meter_w=np.zeros(domains),
    )


@dataclass(frozen=True, slots=True, eq=False)
class PowerLeases:
    """What was granted, one entry per device."""

    cap_w: FloatArray
    """The newest grant."""
    ceiling_w: FloatArray
    """The most that the device may hold by any grant that may still reach it or that it may still obey."""
    sequence: IntArray
    """Number of the newest grant; -1: none yet."""
    expires_at_s: FloatArray
    """When the newest grant ends unless it is renewed."""
    epoch: int = 0
    """The term of the controller that granted: agents refuse an older one."""


@dataclass(frozen=True, slots=True)
class SpeedUnderCap:
    """How fast a GPU type does one phase of work under a power limit."""

    gpu_type: str
    phase: int
    cap_share: tuple[float, ...]
    """Limit divided by the highest limit, rising, the last one 1."""
    speed: tuple[float, ...]
    """Speed relative to that at the highest limit, rising, the last one 1."""
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class PowerTable:
    """All that is known about watts at one instant: the part of a snapshot that the power decider works on."""

    domains: DomainTable
    feeds: FeedTable
    classes: tuple[PowerClass, ...]
    gpu_types: tuple[str, ...]
    devices: PowerDeviceTable
    readings: PowerReadings
    leases: PowerLeases
    curves: tuple[BreakerCurve, ...] = ()
    speeds: tuple[SpeedUnderCap, ...] = ()
    """Measured here; types and phases without an entry use the published ones that Tonnage brings."""
    headroom_w: Mapping[str, float] = field(default_factory=dict)
    """Domain → watts that more work may begin to draw in it: budget less the present draw and its spike's margin; below
    0 where it is short already, or where the floors of what is admitted do not fit. Empty: nobody reckons it."""
    courses: Mapping[str, FloatArray] = field(default_factory=dict)
    """Service → what each of its GPUs is expected to draw in each hour of a day or week (UTC), as a share of the span
    from rest to the highest limit, 0..1; all of one length. Services that are not in it are expected to draw evenly."""

    def leased(self, rows: Sequence[int], lease: SetPowerLease, at_s: float) -> "PowerTable":
        """The table with the devices in `rows`, in the order of the lease's caps, under this lease and obeying it."""
        caps_w = np.array(list(lease.caps_w.values()), dtype=np.float64)
        leases = PowerLeases(
            cap_w=_written(self.leases.cap_w, rows, caps_w),
            ceiling_w=_written(self.leases.ceiling_w, rows, caps_w),
            sequence=_written(self.leases.sequence, rows, lease.sequence),
            expires_at_s=_written(self.leases.expires_at_s, rows, at_s + lease.for_s),
            epoch=max(lease.epoch, self.leases.epoch),
        )
        readings = replace(
            self.readings,
            cap_w=_written(self.readings.cap_w, rows, caps_w),
            sequence=_written(self.readings.sequence, rows, lease.sequence),
        )
        return replace(self, leases=leases, readings=readings)


def _written(column: Array, rows: Sequence[int], values: Array | float) -> Array:
    """A copy of a column with new values in some rows."""
    made = column.copy()
    made[list(rows)] = values
    made.setflags(write=False)
    return made
