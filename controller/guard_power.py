"""The guard's part for watts: a lease that could put a domain over its budget is struck out."""

from dataclasses import replace

import numpy as np

from cluster.actions import SetPowerLease
from cluster.errors import ActionError
from cluster.plans import Reason
from cluster.snapshot import Snapshot, leased
from power.domains.tree import reach_of


def objection_to_lease(snapshot: Snapshot, lease: SetPowerLease) -> Reason | None:
    """Why this lease must not be given; None when it may.

    Counted anew from the snapshot: every device at the most that it may hold by any grant, and this lease on top. To
    lower is never refused for a budget, however far over it is.
    """
    try:
        after = promised(snapshot, lease).power
    except ActionError as error:
        return Reason("NotFound", str(error))
    if (before := snapshot.power) is None or after is None:
        return Reason("NotFound", "there are no power domains")
    devices = before.devices
    rows = [row for name in lease.caps_w if (row := devices.names.row(name)) is not None]
    caps_w = after.leases.cap_w[rows]
    if not devices.managed[rows].all():
        return Reason("OptedOut", f"a device of {lease.node} was opted out of power management")
    if (caps_w < devices.min_w[rows]).any() or (caps_w > devices.max_w[rows]).any():
        return Reason("OutOfRange", f"a cap for {lease.node} is outside what the device accepts")
    if lease.sequence <= int(before.leases.sequence[rows].max(initial=-1)) or lease.epoch < before.leases.epoch:
        return Reason("OutOfOrder", f"{lease.node} holds a newer lease")
    if (caps_w <= before.leases.ceiling_w[rows]).all():
        return None
    burden = (1 + devices.overshoot_share) * (1 + devices.overhead_share) * after.leases.ceiling_w
    reach = reach_of(before)
    drawn = reach.T @ before.domains.other_w + reach[devices.domain].T @ burden
    over = drawn - before.domains.budget_w
    for domain in np.flatnonzero((over > 1e-6) & (reach[devices.domain[rows]].max(axis=0, initial=0) > 0)).tolist():
        words = f"{before.domains.names[domain]} could draw {over[domain]:.0f} W over its budget"
        return Reason("OverBudget", words, {"over_w": float(over[domain])})
    return None


def promised(snapshot: Snapshot, lease: SetPowerLease) -> Snapshot:
    """The snapshot after this lease was sent and before anyone confirmed it: no device's ceiling falls yet.

    Raises ActionError when the node or a device is not there.
    """
    after = leased(snapshot, lease)
    if snapshot.power is None or after.power is None:
        return after
    ceiling_w = np.maximum(snapshot.power.leases.ceiling_w, after.power.leases.ceiling_w)
    return replace(after, power=replace(after.power, leases=replace(after.power.leases, ceiling_w=ceiling_w)))
