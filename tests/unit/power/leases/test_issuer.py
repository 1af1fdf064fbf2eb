"""The controller's side: which reports count, and how old their readings can be."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.power import NEVER_S, PHASE_UNKNOWN
from power.control.state import allocator_of, first_state
from power.control.step import step
from power.leases.issuer import LeaseLedger, adopted, answers, found_w, readings_of, with_report
from power.leases.messages import DeviceReport, Report
from tests.builders.power import Device, row_of

TABLE = row_of([Device("g1", "n1"), Device("g2", "n2"), Device("kept", "n2", managed=False)], 1000.0)
REPORT = Report("n1", "life-1", 50.0, 4, 7, {"g1": DeviceReport(250.0, 0.5, 300.0, 1)}, 4, 900.0, 3.0)


def after(*reports: Report, epoch: int = 4) -> LeaseLedger:
    ledger = LeaseLedger(epoch, 10.0)
    for report in reports:
        ledger, _ = with_report(ledger, report)
    return ledger


def test_a_reading_is_as_old_as_it_can_be_at_most() -> None:
    seen = readings_of(after(REPORT), TABLE)

    # The lease that it names was issued at 900 s, 3 s before the report, and the draw was measured 0.5 s before that.
    assert seen.at_s.tolist() == [902.5, NEVER_S, NEVER_S]
    assert (seen.draw_w[0], seen.cap_w[0], seen.sequence[0]) == (250.0, 300.0, 7)


def test_without_a_lease_of_this_controller_a_reading_has_no_age_and_a_number_means_nothing() -> None:
    seen = readings_of(after(REPORT, epoch=5), TABLE)

    assert (seen.at_s[0], seen.sequence[0]) == (NEVER_S, -1)


def test_a_nodes_meter_is_as_old_as_it_can_be_at_most_and_one_that_nobody_reads_is_none() -> None:
    report = replace(REPORT, meter_w=1900.0, meter_age_s=4.0)
    node = TABLE.domains.names.row("n1")

    seen, other, without = (readings_of(after(each, epoch=epoch), TABLE) for each, epoch in
                            ((report, 4), (report, 5), (REPORT, 4)))  # fmt: skip

    assert node is not None
    assert (seen.meter_at_s[node], seen.meter_w[node]) == (899.0, 1900.0)  # 900 + 3 - 4
    assert np.flatnonzero(seen.meter_at_s > NEVER_S).tolist() == [node]
    assert other.meter_at_s[node] == NEVER_S  # an instant of another controller's clock
    assert (without.meter_at_s == NEVER_S).all()


@pytest.mark.parametrize("sent_s", [50.0, 49.0], ids=["doubled", "reordered"])
def test_doubled_and_reordered_reports_do_not_count(sent_s: float) -> None:
    _, refusal = with_report(after(REPORT), replace(REPORT, sent_s=sent_s))

    assert refusal is not None
    assert refusal.code == "Replayed"


def test_a_report_of_a_former_life_does_not_count() -> None:
    _, refusal = with_report(after(REPORT, replace(REPORT, life="life-2", sent_s=1.0)), replace(REPORT, sent_s=99.0))

    assert refusal is not None
    assert refusal.code == "OtherLife"


def test_an_agent_that_talks_nonsense_breaks_nothing() -> None:
    nonsense = replace(
        REPORT,
        sequence=2**80,
        since_s=1e300,
        devices={"g1": DeviceReport(1e300, -1e300, 1e300, 77), "g7": DeviceReport(1, 1, 1)},
    )
    seen = readings_of(after(nonsense), TABLE)
    allocator = allocator_of(adopted(TABLE, found_w(after(REPORT), TABLE), 4))

    state, grants = step(allocator, first_state(allocator), seen, 905.0)

    assert seen.phase[0] == PHASE_UNKNOWN
    assert np.isfinite(grants.cap_w).all()
    assert state.estimate.fault[0] != 0


def test_every_node_that_was_heard_is_answered_by_its_own_clock_and_only_lowered_at_first() -> None:
    ledger = after(REPORT)
    allocator = allocator_of(adopted(TABLE, found_w(ledger, TABLE), 4))
    _, grants = step(allocator, first_state(allocator), readings_of(ledger, TABLE), 905.0)

    (lease,) = answers(ledger, TABLE, grants, 905.0)

    assert (lease.node, lease.life, lease.echo_s, lease.epoch, lease.only_lower) == ("n1", "life-1", 50.0, 4, True)
    assert set(lease.caps_w) == {"g1"}


def test_a_device_that_was_not_heard_is_taken_over_at_its_floor_and_counts_at_its_highest_limit() -> None:
    table = adopted(TABLE, found_w(after(REPORT), TABLE), 4)

    assert table.leases.cap_w[:2].tolist() == [300.0, 200.0]
    assert table.leases.ceiling_w.tolist() == [400.0, 400.0, 400.0]
