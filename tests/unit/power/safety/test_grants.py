"""Grants: lowered at once, raised only where nothing older may still be held, and where readings can be believed."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from power.control.state import Allocator, allocator_of, first_state
from power.control.step import as_found_w, granted_w, step
from power.rules import PowerRules
from power.safety.commitments import first_ledger
from power.safety.estimator import FINE, STALE, Estimate, first_trust
from tests.builders.power import Device, row_of

RULES = PowerRules(burst_share=0.0)


@dataclass(frozen=True)
class Case:
    """Two devices; each has a cap of 200 W that it holds, confirmed, wants 400 W, and is believed."""

    devices: tuple[Device, Device] = (Device("a", "n1"), Device("b", "n2"))
    cap_w: tuple[float, float] = (200.0, 200.0)
    ceiling_w: tuple[float, float] = (200.0, 200.0)
    target_w: tuple[float, float] = (400.0, 400.0)
    believed: tuple[bool, bool] = (True, True)
    fault: tuple[int, int] = (FINE, FINE)
    budget_w: float = 1000.0
    clean: bool = True

    @property
    def allocator(self) -> Allocator:
        table = row_of(self.devices, self.budget_w)
        leases = replace(table.leases, cap_w=np.array(self.cap_w), ceiling_w=np.array(self.ceiling_w))
        return allocator_of(replace(table, leases=leases), RULES)

    def next_w(self) -> list[float]:
        allocator = self.allocator
        ledger = first_ledger(allocator.tree.table.leases)
        held_w = np.array(self.ceiling_w)
        seen = Estimate(held_w, held_w, np.array(self.believed), np.array(self.fault), clean=self.clean)
        trust = first_trust(allocator.tree)
        target_w, room_w = np.array(self.target_w), allocator.tree.budget_w
        nobody = np.zeros(2, dtype=np.bool_)
        return granted_w(allocator.tree, trust, ledger, seen, nobody, target_w, room_w).tolist()


def test_caps_rise_to_their_targets_where_there_is_room() -> None:
    assert Case().next_w() == [400.0, 400.0]


def test_a_cap_rises_only_after_the_grant_before_it_was_confirmed() -> None:
    """A grant of 300 W may still be held, so this device's ceiling is above its cap."""
    assert Case(ceiling_w=(300.0, 200.0)).next_w() == [200.0, 400.0]


@pytest.mark.parametrize(
    ("believed", "fault"), [((False, True), (FINE, FINE)), ((True, True), (STALE, FINE))], ids=["unread", "faulty"]
)
def test_no_cap_rises_of_a_device_that_is_not_believed(believed: tuple[bool, bool], fault: tuple[int, int]) -> None:
    assert Case(believed=believed, fault=fault, clean=False).next_w() == [200.0, 400.0]


def test_wants_beyond_the_room_are_trimmed_alike_above_the_lowest_limits() -> None:
    """Both want 400 W of 500 W. Above their lowest limits of 100 W each, 300 W are left, 150 W for each."""
    assert Case(cap_w=(400.0, 400.0), ceiling_w=(400.0, 400.0), budget_w=500.0).next_w() == [250.0, 250.0]


def test_a_cap_of_a_device_that_opted_out_never_changes() -> None:
    devices = (Device("a", "n1", managed=False), Device("b", "n2"))
    targets_w = ((150.0, 400.0), (400.0, 400.0))

    assert [Case(devices, clean=False, target_w=target_w).next_w()[0] for target_w in targets_w] == [200.0, 200.0]


def test_a_cap_is_lowered_at_once_whatever_is_believed() -> None:
    case = Case(ceiling_w=(300.0, 300.0), target_w=(120.0, 120.0), believed=(False, False), clean=False)

    assert case.next_w() == [120.0, 120.0]


def test_what_may_still_be_held_elsewhere_is_not_given_away() -> None:
    """Of 700 W one device may hold 400 W: the other may rise to 300 W."""
    case = Case(ceiling_w=(400.0, 200.0), target_w=(200.0, 400.0), budget_w=700.0)

    assert case.next_w() == [200.0, 300.0]


def test_a_device_that_is_met_gets_no_more_than_it_was_found_at() -> None:
    """An earlier controller may have lowered it and granted the power to others."""
    allocator = Case().allocator
    before = first_ledger(allocator.tree.table.leases)
    ledger = replace(before, met=np.array([True, False]))
    readings = replace(allocator.tree.table.readings, cap_w=np.array([120.0, 120.0]))

    assert as_found_w(allocator.tree, before, ledger, readings, np.array([200.0, 200.0])).tolist() == [120.0, 200.0]
    assert as_found_w(allocator.tree, ledger, ledger, readings, np.array([200.0, 200.0])).tolist() == [200.0, 200.0]


def test_a_new_controller_grants_no_more_than_it_found_in_the_step_in_which_it_meets_a_device() -> None:
    """It believes that both have 400 W, and finds them at 250 W."""
    allocator = Case(cap_w=(400.0, 400.0), ceiling_w=(400.0, 400.0)).allocator
    heard = replace(
        allocator.tree.table.readings,
        at_s=np.full(2, 100.0),
        draw_w=np.full(2, 240.0),
        cap_w=np.full(2, 250.0),
        sequence=allocator.tree.table.leases.sequence,
    )

    state, grants = step(allocator, first_state(allocator), heard, 100.0)

    assert state.ledger.met.all()
    assert grants.cap_w.tolist() == [250.0, 250.0]
