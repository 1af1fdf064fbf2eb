"""What isolation costs on a real kernel, by bounds that hold on a busy machine too."""

import pytest

from simulator.kernel.guest import Guest

COSTS = "simulator.sandboxes.costs"


@pytest.mark.parametrize("rate_mib_s", [500.0, 0.0])
def test_a_call_at_its_brake_is_frozen_within_megabytes(guest: Guest, rate_mib_s: float) -> None:
    found = guest.call(f"{COSTS}:freezes", 5, rate_mib_s, 32)

    assert max(found["over_mib"]) <= 4.0


def test_a_call_in_the_shared_leaf_needs_no_group_of_its_own(guest: Guest) -> None:
    found = guest.call(f"{COSTS}:calls", 5)

    assert len(found["own"]) == len(found["shared"]) == 5


def test_the_controller_sleeps_while_nothing_happens(guest: Guest) -> None:
    # Measured: 0.6 % of an emulated core on a busy machine.
    assert guest.call(f"{COSTS}:at_rest", 64, 3.0) < 0.05
