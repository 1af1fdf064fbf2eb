"""Power: the tree of budgets, the devices that draw from it, their readings, and their power leases."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, Names

UNLIMITED_W = 1e15
"""Budget of a domain that only groups others. A finite number, so that records can hold it (JSON has no infinity)."""

NEVER_S = -1e15
"""Instant of a value that was never read: older than any limit on age, and still a number."""

PHASE_UNKNOWN = -1
PHASE_IDLE = 0
"""No work: a cap costs nothing and saves nothing."""
PHASE_MEMORY_BOUND = 1
"""Token generation (decode): draws less than the limit and hardly slows down under a cap, down to a cliff."""
PHASE_COMPUTE_BOUND = 2
"""Prompts (prefill) and training steps: draws up to the limit and slows down with it."""
PHASES = (PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_COMPUTE_BOUND, PHASE_UNKNOWN)


@dataclass(frozen=True, slots=True)
class BreakerCurve:
    """Overload that a breaker withstands, and for how long; the same load for longer opens it.

    Points in ascending `over`; between them time falls log-log, and beyond the last one it is that of the last one.
    """

    over: tuple[float, ...]
    """Draw divided by budget, each > 1, ascending: 1.1 is 10 % over."""
    for_s: tuple[float, ...]
    """Seconds until the breaker opens at that draw, descending."""
    cooling_s: float = 300.0
    """Time constant with which the heat of an overload fades when the draw is at the budget or below."""


@dataclass(frozen=True, slots=True)
class PowerClass:
    """Power class of a workload, which decides the order in which power is reduced."""

    name: str
    rank: int
    """Rank, 0 first: a class is reduced to its useful floor before one of lower rank number is touched."""
    bursts: bool = True
    """Whether its devices may draw more than their leases for a moment."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainTable:
    """Power domains: sites, rows, racks, PDUs, nodes. One entry per domain, in the order of `names`."""

    names: Names
    kind: tuple[str, ...]
    """`site`, `row`, `rack`, `pdu` or `node`; for people. The domain of devices is a node: its agent holds their
    leases."""
    budget_w: FloatArray
    """Power that may be drawn through the domain indefinitely; UNLIMITED_W where it only groups."""
    other_w: FloatArray
    """Maximum draw in the domain besides devices and inner domains: CPUs, fans, switches, unmanaged machines."""
    curve: IntArray
    """Index into the power table's `curves`; -1: unknown, so no draw over the budget is tolerated."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class FeedTable:
    """Feeds, each a domain that draws through another: the edges of the power tree, or graph.

    A graph where racks are fed twice.
    """

    child: IntArray
    """Shape (feeds,); rows of the domain table."""
    parent: IntArray
    share: FloatArray
    """Fraction of the child's draw that this parent must be able to carry at worst, in 0..1.

    1 for a single feed, and for each of two feeds when either must carry the rack alone after the other failed.
    """

    def __len__(self) -> int:
        return len(self.child)


@dataclass(frozen=True, slots=True, eq=False)
class PowerDeviceTable:
    """Devices that draw power: GPUs, or whole servers where limits are set per server."""

    names: Names
    """UUIDs, since an index changes when a device falls off the bus."""
    domain: IntArray
    """Node of the device, a row of the domain table."""
    gpu_type: IntArray
    """Index into the power table's `gpu_types`."""
    power_class: IntArray
    """Index into the power table's `classes`."""
    min_w: FloatArray
    """Lowest limit that the device accepts (discovered, not assumed)."""
    max_w: FloatArray
    """Highest limit that the device accepts."""
    default_w: FloatArray
    """Limit after a reboot, a reset or a driver reload."""
    previous_w: FloatArray
    """Limit before Tonnage set one; stopping and uninstalling restore it."""
    floor_w: FloatArray
    """Useful floor, min_w..max_w: below it the work of its class is hardly worth its power (before the cliff)."""
    idle_w: FloatArray
    """Draw without work."""
    overshoot_share: FloatArray
    """Maximum excess of the draw over the limit, as a fraction of the limit (limiters react late and oscillate)."""
    overhead_share: FloatArray
    """Power of fans and conversion, in watts per watt of the device."""
    managed: BoolArray
    """False: opted out. Its limit is never changed, and it counts at its maximum draw."""
    ramp_w_per_s: FloatArray | None = None
    """Highest rate at which the device lets its draw rise (power smoothing); None: no device bounds it."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class PowerReadings:
    """Latest reading of each device and each meter, each with its own instant."""

    at_s: FloatArray
    """Shape (devices,): instant of the draw's measurement, NEVER_S where there is none."""
    draw_w: FloatArray
    """Shape (devices,): mean draw since the previous reading."""
    cap_w: FloatArray
    """Shape (devices,): limit that the device enforces, read back from it; 0 where it cannot be read."""
    sequence: IntArray
    """Shape (devices,): newest lease that the device's agent has accepted and enforced, -1 where there is none."""
    phase: IntArray
    """Shape (devices,): PHASE_… as far as the agent can detect it."""
    meter_at_s: FloatArray
    """Shape (domains,): instant of the reading of a meter of the whole domain, NEVER_S where there is none."""
    meter_w: FloatArray
    """Shape (domains,)."""


def never_read(devices: int, domains: int) -> PowerReadings:
    """Readings before any report of that many devices and domains."""
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
    """Granted leases, one entry per device."""

    cap_w: FloatArray
    """Cap of the newest grant."""
    ceiling_w: FloatArray
    """Highest cap of any grant that may still reach the device, or that it may still obey."""
    sequence: IntArray
    """Number of the newest grant; -1: none yet."""
    expires_at_s: FloatArray
    """Instant at which the newest grant ends unless it is renewed."""
    epoch: int = 0
    """Lease epoch of the controller that granted; agents refuse an older one."""


@dataclass(frozen=True, slots=True, eq=False)
class PowerTable:
    """Power data of one instant: the part of a snapshot that the power decider uses."""

    domains: DomainTable
    feeds: FeedTable
    classes: tuple[PowerClass, ...]
    gpu_types: tuple[str, ...]
    devices: PowerDeviceTable
    readings: PowerReadings
    leases: PowerLeases
    curves: tuple[BreakerCurve, ...] = ()
    headroom_w: Mapping[str, float] = field(default_factory=dict)
    """Domain → power, in watts, that new work may start to draw in it: budget less the present draw and its margin for
    spikes. Below 0 where the domain is short already, or where the floors of admitted work do not fit. Empty: not
    computed."""
