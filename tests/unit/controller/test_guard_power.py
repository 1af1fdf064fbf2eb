"""The guard on watts: no plan may promise more than a budget, and lowering is never refused for one."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.actions import SetPowerLease
from cluster.arrays import column
from cluster.errors import ActionError
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from controller.guard import Limits, guard
from tests.builders.fleet import world
from tests.builders.power import Device, row_of

DEVICES = (Device("g1", "n1"), Device("g2", "n2"), Device("kept", "n2", managed=False))


def seen(budget_w: float, held_w: tuple[float, float, float] = (200.0, 200.0, 400.0)) -> Snapshot:
    table = row_of(DEVICES, budget_w)
    held = column(held_w, np.float64)
    return replace(world([]), power=replace(table, leases=replace(table.leases, cap_w=held, ceiling_w=held)))


def lease(node: str, device: str, cap_w: float, sequence: int = 1) -> SetPowerLease:
    return SetPowerLease(node, {device: cap_w}, sequence)


def refusals(snapshot: Snapshot, *actions: SetPowerLease) -> list[str]:
    plan = Plan((Phase("watts", tuple(Step(action, Reason("R", "r")) for action in actions)),))
    return [refused.reason.code for refused in guard(snapshot, plan, Limits()).refused]


def test_a_lease_within_the_budget_passes() -> None:
    assert refusals(seen(900.0), lease("n1", "g1", 300.0)) == []  # 300 + 200 + 400


def test_a_lease_over_the_budget_is_struck_out() -> None:
    assert refusals(seen(899.0), lease("n1", "g1", 300.0)) == ["OverBudget"]


def test_watts_that_another_step_lowers_are_not_free_before_it_is_confirmed() -> None:
    assert refusals(seen(800.0), lease("n2", "g2", 100.0), lease("n1", "g1", 300.0)) == ["OverBudget"]


def test_lowering_passes_however_far_over_its_budget_a_domain_is() -> None:
    assert refusals(seen(100.0), lease("n1", "g1", 150.0)) == []


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (lease("n2", "kept", 200.0), "OptedOut"),
        (lease("n1", "g1", 99.0), "OutOfRange"),
        (lease("n1", "g1", 401.0), "OutOfRange"),
        (lease("n1", "g2", 200.0), "NotFound"),
        (lease("n9", "g1", 200.0), "NotFound"),
        (lease("n1", "g1", 200.0, sequence=-1), "OutOfOrder"),
    ],
    ids=str,
)
def test_what_a_lease_may_not_be(action: SetPowerLease, code: str) -> None:
    assert refusals(seen(5000.0), action) == [code]


def test_after_a_lease_the_snapshot_shows_it_obeyed() -> None:
    power = seen(900.0).after([lease("n1", "g1", 300.0)]).power

    assert power is not None
    assert (power.leases.cap_w[0], power.readings.cap_w[0], power.leases.sequence[0]) == (300.0, 300.0, 1)
    assert power.leases.expires_at_s[0] == 10.0


def test_a_lease_where_nobody_declared_power_domains_cannot_be() -> None:
    with pytest.raises(ActionError, match="no such power domain"):
        world([]).after([lease("n1", "g1", 300.0)])
