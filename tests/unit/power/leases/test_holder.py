"""A node's holder of leases: what holds under one, and leases that it refuses as replayed, late or out of range."""

from dataclasses import replace

import pytest

from power.leases.holder import DeviceLimits, Holder, accepted, bursts, limits
from power.leases.messages import Lease

HOLDER = Holder("n1", "life-1", {"g1": DeviceLimits(100.0, 400.0, 200.0, 350.0)})
LEASE = Lease("n1", "life-1", 100.0, 10.0, 3, 7, 5000.0, {"g1": 300.0}, {"g1": 200.0})


def leased(holder: Holder = HOLDER, lease: Lease = LEASE, now_s: float = 101.0) -> Holder:
    made, refusal = accepted(holder, lease, now_s)
    assert refusal is None
    return made


def code(holder: Holder, lease: Lease, now_s: float = 101.0) -> str:
    made, refusal = accepted(holder, lease, now_s)
    assert made is holder
    assert refusal is not None
    return refusal.code


def test_a_lease_holds_until_it_ends_and_then_the_safe_floor_does() -> None:
    holder = leased()

    # It ends 10 s after the report that it answers was sent at 100 s, less a thousandth for clocks that differ.
    assert limits(holder, 109.98) == {"g1": 300.0}
    assert limits(holder, 109.99) == {"g1": 200.0}


def test_without_any_lease_the_safe_floor_holds() -> None:
    assert limits(HOLDER, 0.0) == {"g1": 200.0}


def test_a_lease_below_the_floor_stays_below_it_when_it_ends() -> None:
    holder = leased(lease=replace(LEASE, caps_w={"g1": 150.0}, safe_w={"g1": 150.0}))

    assert limits(holder, 1000.0) == {"g1": 150.0}


def test_a_lease_that_comes_late_ends_no_later() -> None:
    holder = leased(now_s=109.0)

    assert limits(holder, 110.0) == {"g1": 200.0}


@pytest.mark.parametrize(
    ("lease", "why"),
    [
        (replace(LEASE, sequence=6), "Replayed"),
        (replace(LEASE, epoch=2, sequence=99), "StaleEpoch"),
        (replace(LEASE, sequence=8, echo_s=90.0), "Expired"),
        (replace(LEASE, sequence=8, echo_s=102.0), "FromTheFuture"),
        (replace(LEASE, sequence=8, echo_s=float("nan")), "FromTheFuture"),
        (replace(LEASE, sequence=8, life="life-0"), "OtherLife"),
        (replace(LEASE, sequence=8, node="n2"), "OtherNode"),
        (replace(LEASE, sequence=8, caps_w={"g1": 401.0}), "OutOfRange"),
        (replace(LEASE, sequence=8, caps_w={"g1": float("nan")}), "OutOfRange"),
        (replace(LEASE, sequence=8, safe_w={"g1": 301.0}), "OutOfRange"),
        (replace(LEASE, sequence=8, burst_j={"g1": float("inf")}), "OutOfRange"),
        (replace(LEASE, sequence=8, caps_w={"g9": 300.0}), "OtherDevices"),
        (replace(LEASE, sequence=8, burst_j={"g9": 1.0}), "OtherDevices"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_leases_that_are_refused_change_nothing(lease: Lease, why: str) -> None:
    assert code(leased(), lease) == why


def test_the_same_lease_again_renews_it() -> None:
    holder = leased(leased(), replace(LEASE, echo_s=105.0), now_s=106.0)

    assert limits(holder, 114.9) == {"g1": 300.0}


def test_a_lease_that_may_only_lower_raises_nothing() -> None:
    new_term = replace(LEASE, epoch=4, sequence=0, caps_w={"g1": 400.0}, only_lower=True)

    assert limits(leased(leased(), new_term), 102.0) == {"g1": 300.0}


def test_bursts_end_with_the_lease() -> None:
    holder = leased(lease=replace(LEASE, burst_j={"g1": 900.0}))

    assert bursts(holder, 105.0) == {"g1": 900.0}
    assert bursts(holder, 110.0) == {}


def test_a_device_that_no_lease_names_keeps_the_limit_that_was_found() -> None:
    two = replace(HOLDER, devices={**HOLDER.devices, "kept": DeviceLimits(100.0, 400.0, 200.0, 380.0)})

    assert limits(leased(two), 101.0)["kept"] == 380.0


def test_a_late_copy_of_a_lease_does_not_shorten_it() -> None:
    renewed = leased(leased(), replace(LEASE, echo_s=105.0), now_s=106.0)

    late = leased(renewed, LEASE, now_s=107.0)

    assert limits(late, 114.9) == {"g1": 300.0}


def test_a_lease_of_a_new_epoch_ends_as_it_says_though_the_one_before_lasted_longer() -> None:
    long = leased(lease=replace(LEASE, for_s=60.0))

    assert limits(leased(long, replace(LEASE, epoch=4, sequence=0)), 111.0) == {"g1": 200.0}


def test_the_instant_of_issue_is_on_the_clock_of_the_controller_that_issued_it() -> None:
    """Reports name it, and the controller derives the age of readings from it."""
    older = leased(leased(), replace(LEASE, issued_s=4000.0))
    other = leased(leased(), replace(LEASE, epoch=4, sequence=0, issued_s=10.0))

    assert older.issued_s == 5000.0, "the newest of one controller"
    assert other.issued_s == 10.0, "another controller's clock may have started later"
