"""Commitments: what each device may hold at most, by any grant that is in transit, in force, or not yet proven obeyed.

Grants may be lost, late, duplicated or out of order; devices take the newest that they have received and never an older
one. So a device may hold any grant between the newest that it confirmed and the newest that was sent, and its ceiling
is the largest of these. A ceiling rises when a grant is sent and falls only when obedience was observed.
"""

from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, all_of, any_of
from cluster.power import NEVER_S, PowerLeases


@dataclass(frozen=True, slots=True, eq=False)
class GrantLedger:
    """Record of grants, one entry per device."""

    cap_w: FloatArray
    """Newest grant."""
    ceiling_w: FloatArray
    sequence: IntArray
    """Sequence number of the newest grant, -1 before the first. All grants of one moment share a number, and numbers
    rise, so a node's lease carries the number of the newest grant among its devices."""
    mark: IntArray
    """Number of a grant that was not yet obeyed; once it is confirmed, older grants no longer matter."""
    since_mark_w: FloatArray
    """Largest grant from the mark on: a device that confirms the mark and keeps to this value holds no older grant."""
    due_since_s: FloatArray
    """Instant from which the device has been asked for something not yet seen obeyed, however often it was asked again;
    NEVER_S before the first request."""
    next_at_s: FloatArray
    """Instant when the first grant after the mark was sent; infinite if there is none."""
    before_w: FloatArray
    """Grant before the newest: readings may still show it."""
    granted_at_s: FloatArray
    """Instant when the newest grant was sent."""
    burst: BoolArray
    """Whether the newest grant allows bursts above it (power/safety/bursts.py)."""
    held_burst: BoolArray
    """Whether a grant that the device may still hold allows bursts."""
    met: BoolArray
    """Whether the device was ever seen to obey a grant of this controller."""
    open: BoolArray
    """Whether the newest grant was not yet seen to be obeyed."""

    @property
    def settled(self) -> bool:
        """Whether every newest grant is obeyed, so that every ceiling is the newest grant."""
        return not any_of(self.open)


def first_ledger(leases: PowerLeases) -> GrantLedger:
    """The record of a controller after its start: the leases in the snapshot, none of them confirmed to it."""
    return GrantLedger(
        cap_w=leases.cap_w,
        ceiling_w=np.maximum(leases.ceiling_w, leases.cap_w),
        sequence=leases.sequence,
        mark=leases.sequence,
        since_mark_w=leases.cap_w,
        due_since_s=np.full(len(leases.cap_w), NEVER_S),
        next_at_s=np.full(len(leases.cap_w), np.inf),
        before_w=leases.cap_w,
        granted_at_s=np.full(len(leases.cap_w), NEVER_S),
        burst=np.zeros(len(leases.cap_w), dtype=bool),
        held_burst=np.zeros(len(leases.cap_w), dtype=bool),
        met=np.zeros(len(leases.cap_w), dtype=bool),
        open=np.ones(len(leases.cap_w), dtype=bool),
    )


def confirmed(ledger: GrantLedger, reported: IntArray, obeyed: BoolArray, keeps_mark: BoolArray) -> GrantLedger:
    """The record after devices reported the grants that they hold (`reported`) and were seen to draw no more.

    obeyed: devices that obey the newest grant; keeps_mark: devices that keep to `since_mark_w`, such as one that is
    lowered step by step and always one step behind.
    """
    if ledger.settled and all_of(ledger.met):
        return ledger
    newest = obeyed & (reported >= ledger.sequence)
    past_mark = newest | (keeps_mark & (reported >= ledger.mark))
    ceiling_w = np.where(newest, ledger.cap_w, np.where(past_mark, ledger.since_mark_w, ledger.ceiling_w))
    return replace(
        ledger,
        ceiling_w=np.minimum(ceiling_w, ledger.ceiling_w),
        mark=np.where(past_mark, ledger.sequence, ledger.mark),
        since_mark_w=np.where(past_mark, ledger.cap_w, ledger.since_mark_w),
        due_since_s=np.where(past_mark, np.minimum(ledger.next_at_s, ledger.granted_at_s), ledger.due_since_s),
        next_at_s=np.where(past_mark, np.inf, ledger.next_at_s),
        held_burst=np.where(newest, ledger.burst, ledger.held_burst),
        met=ledger.met | newest,
        open=ledger.open & ~newest,
    )


def granted(ledger: GrantLedger, cap_w: FloatArray, burst: BoolArray, changed: BoolArray, at_s: float) -> GrantLedger:
    """The record after new grants were sent to the devices in `changed`."""
    number = ledger.sequence.max(initial=-1) + 1
    opens = changed & (~ledger.open | (ledger.due_since_s == NEVER_S))
    return replace(
        ledger,
        cap_w=np.where(changed, cap_w, ledger.cap_w),
        ceiling_w=np.where(changed, np.maximum(ledger.ceiling_w, cap_w), ledger.ceiling_w),
        sequence=np.where(changed, number, ledger.sequence),
        mark=np.where(opens, number, ledger.mark),
        since_mark_w=np.where(
            opens, cap_w, np.where(changed, np.maximum(ledger.since_mark_w, cap_w), ledger.since_mark_w)
        ),
        due_since_s=np.where(opens, at_s, ledger.due_since_s),
        next_at_s=np.where(opens, np.inf, np.where(changed, np.minimum(ledger.next_at_s, at_s), ledger.next_at_s)),
        before_w=np.where(changed, ledger.cap_w, ledger.before_w),
        granted_at_s=np.where(changed, at_s, ledger.granted_at_s),
        burst=np.where(changed, burst, ledger.burst),
        held_burst=ledger.held_burst | (changed & burst),
        open=ledger.open | changed,
    )
