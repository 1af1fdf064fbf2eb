"""The controller's side of leases: which reports count, how old their readings can be, and the leases that answer them.

No caps are decided here: `power/control/step.py` does that. This is the border between its columns and the messages
of nodes.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.arrays import FloatArray
from cluster.power import NEVER_S, PHASE_UNKNOWN, PHASES, PowerLeases, PowerReadings, PowerTable
from power.control.state import Grants
from power.leases.messages import Lease, Refusal, Report

_HIGHEST = 2**62
"""Upper bound of sequence numbers, higher than any controller reaches; an agent that reports more must not break the
arithmetic for all others."""
_LIVES_KEPT = 8
"""Number of former sessions of an agent remembered, to distinguish their reports from those of the present one."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Newest report of a node."""

    report: Report
    former_lives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseLedger:
    """Controller's record of nodes. A new controller starts with an empty one and a higher epoch."""

    epoch: int
    for_s: float
    """Lifetime of its leases, from the report that each answers."""
    nodes: Mapping[str, NodeReport] = field(default_factory=dict)


def with_report(ledger: LeaseLedger, report: Report) -> tuple[LeaseLedger, Refusal | None]:
    """The record after a report, or the unchanged record with the reason why the report does not count.

    Late, duplicated and reordered reports do not count, nor those of a former session of the agent.
    """
    known = ledger.nodes.get(report.node)
    if known is None:
        return _with(ledger, NodeReport(report)), None
    if report.life == known.report.life:
        if report.sent_s <= known.report.sent_s:
            return ledger, Refusal("Replayed", "a newer report was received before")
        return _with(ledger, replace(known, report=report)), None
    if report.life in known.former_lives:
        return ledger, Refusal("OtherLife", "report is from before the agent lost its record")
    lives = (known.report.life, *known.former_lives)[:_LIVES_KEPT]
    return _with(ledger, NodeReport(report, lives)), None


def _with(ledger: LeaseLedger, node: NodeReport) -> LeaseLedger:
    return replace(ledger, nodes={**ledger.nodes, node.report.node: node})


def readings_of(ledger: LeaseLedger, table: PowerTable) -> PowerReadings:
    """Readings from the newest reports, in the order of the table's devices, on the controller's clock.

    An instant is the earliest possible one of the reading: when the lease that the report names was issued, plus the
    time since then by the agent's own clock. Until an agent has received a lease in this session, the age of its
    readings has no bound, and they count as never read.
    """
    # 1,600 devices ten times a second: lists are filled, since each write into an array costs as much as the rest.
    devices = len(table.devices)
    at_s, draw_w, cap_w = [NEVER_S] * devices, [0.0] * devices, [0.0] * devices
    sequence, phase = [-1] * devices, [-1] * devices
    node_of = [ledger.nodes.get(name) for name in table.domains.names]
    # Else the instant is on another controller's clock.
    is_timed = [node is not None and node.report.answered_epoch == ledger.epoch for node in node_of]
    for row, (name, domain) in enumerate(zip(table.devices.names, table.devices.domain.tolist(), strict=True)):
        node = node_of[domain]
        if node is None or (reported := node.report.devices.get(name)) is None:
            continue
        report = node.report
        if is_timed[domain]:
            at_s[row] = report.answered_s + report.since_s - reported.age_s
        draw_w[row], cap_w[row] = reported.draw_w, reported.cap_w
        phase[row] = reported.phase if reported.phase in PHASES else PHASE_UNKNOWN
        if report.epoch == ledger.epoch:
            sequence[row] = min(max(report.sequence, -1), _HIGHEST)
    meter_at_s, meter_w = np.full(len(node_of), NEVER_S), np.zeros(len(node_of))
    for row, node in enumerate(node_of):
        if node is not None and (metered_w := node.report.meter_w) is not None:
            report, meter_w[row] = node.report, metered_w
            if is_timed[row]:
                meter_at_s[row] = report.answered_s + report.since_s - report.meter_age_s
    return replace(
        table.readings,
        meter_at_s=meter_at_s,
        meter_w=meter_w,
        at_s=np.array(at_s, dtype=np.float64),
        draw_w=np.array(draw_w, dtype=np.float64),
        cap_w=np.array(cap_w, dtype=np.float64),
        sequence=np.array(sequence, dtype=np.int64),
        phase=np.array(phase, dtype=np.int64),
    )


def found_w(ledger: LeaseLedger, table: PowerTable) -> FloatArray:
    """Limits that devices were found at, shape (devices,), adopted by a controller after its start.

    The useful floor where a device was not heard from: a lease may only lower it until it was.
    """
    made = table.devices.floor_w.copy()
    for row, name in enumerate(table.devices.names):
        node = ledger.nodes.get(table.domains.names[int(table.devices.domain[row])])
        if node is not None and (reported := node.report.devices.get(name)) is not None:
            made[row] = min(max(reported.cap_w, float(table.devices.min_w[row])), float(table.devices.max_w[row]))
    return made


def adopted(table: PowerTable, found_w: FloatArray, epoch: int) -> PowerTable:
    """The table of a controller that has just started and knows only the limits that it found.

    Every device is granted what it has, and counts at its highest limit until it was seen to obey that.
    """
    devices = len(table.devices)
    leases = PowerLeases(
        cap_w=found_w,
        ceiling_w=np.maximum(table.devices.max_w, table.devices.default_w),
        sequence=np.zeros(devices, dtype=np.int64),
        expires_at_s=np.full(devices, NEVER_S),
        epoch=epoch,
    )
    return replace(table, leases=leases)


def answers(
    ledger: LeaseLedger, table: PowerTable, grants: Grants, now_s: float, only: Container[str] | None = None
) -> tuple[Lease, ...]:
    """Leases for all nodes that were heard from, each answering the newest report. only: for these nodes; None: for
    all.

    A lease is sent for every report, changed or not, since it renews. A second one for the same report is harmless,
    since both end at the same time. A node that was not yet seen to obey this controller is only lowered.
    """
    # The managed devices of each node; opted-out ones are in no lease.
    managed = np.flatnonzero(table.devices.managed)
    order = managed[np.argsort(table.devices.domain[managed], kind="stable")]
    nodes, starts = np.unique(table.devices.domain[order], return_index=True)
    made = []
    for domain, rows in zip(nodes.tolist(), np.split(order, starts[1:]), strict=True):
        node = table.domains.names[domain]
        if (known := ledger.nodes.get(node)) is None or (only is not None and node not in only):
            continue
        names = {int(row): table.devices.names[int(row)] for row in rows}
        bursts = {row: name for row, name in names.items() if grants.burst_j[row] > 0}
        lease = Lease(
            node=node,
            life=known.report.life,
            echo_s=known.report.sent_s,
            for_s=ledger.for_s,
            epoch=ledger.epoch,
            sequence=int(grants.sequence[rows].max()),
            issued_s=now_s,
            caps_w={name: float(grants.cap_w[row]) for row, name in names.items()},
            safe_w={name: float(grants.safe_w[row]) for row, name in names.items()},
            burst_j={name: float(grants.burst_j[row]) for row, name in bursts.items()},
            burst_to_w={name: float(grants.burst_to_w[row]) for row, name in bursts.items()},
            credit_back_s=float(grants.credit_back_s[rows].max()),
            only_lower=not grants.met[rows].all(),
        )
        made.append(lease)
    return tuple(made)
