"""What an allocator knew of devices goes on in one for a changed table."""

from dataclasses import fields, replace
from operator import attrgetter

import numpy as np

from cluster.power import PowerTable
from power.control.state import Allocator, AllocatorState, allocator_of, carried, first_state
from power.control.step import step
from power.rules import PowerRules
from tests.builders.power import Device, row_of

HARD = PowerRules(burst_share=0.0)
A, B, C = (Device(name, f"n-{name}") for name in "abc")


def lived(table: PowerTable) -> tuple[Allocator, AllocatorState]:
    """After twenty seconds in which all devices obey, except that `b` exceeds its limit from the fifth on."""
    allocator = allocator_of(table, HARD)
    state = first_state(allocator)
    readings = table.readings
    for second in range(20):
        draw_w = np.array([390.0 if name == "b" and second >= 5 else 150.0 for name in table.devices.names])
        readings = replace(
            readings,
            at_s=np.full(len(draw_w), float(second)),
            draw_w=draw_w + second,
            cap_w=state.ledger.cap_w.copy(),
            sequence=state.ledger.sequence.copy(),
        )
        state, _ = step(allocator, state, readings, float(second))
    return allocator, state


def after(table: PowerTable, before: Allocator, state: AllocatorState) -> AllocatorState:
    changed = allocator_of(table, HARD)
    return carried(before, state, changed, first_state(changed))


def test_a_device_that_stays_keeps_its_grants_and_a_new_one_begins() -> None:
    before, state = lived(row_of([A, B], 500.0))
    found = after(row_of([C, B, A], 900.0), before, state)

    # c is new, a and b have changed places.
    assert found.ledger.ceiling_w.tolist() == [400.0, *state.ledger.ceiling_w[[1, 0]].tolist()]
    assert found.ledger.sequence.tolist() == [-1, *state.ledger.sequence[[1, 0]].tolist()]
    assert found.ledger.met.tolist() == [False, *state.ledger.met[[1, 0]].tolist()]


def test_a_liar_keeps_its_distrust() -> None:
    before, state = lived(row_of([A, B], 500.0))
    assert state.trust.distrusted_until_s[1] > 300

    found = after(row_of([B], 500.0), before, state)
    assert found.trust.distrusted_until_s.tolist() == [state.trust.distrusted_until_s[1]]


def test_every_column_of_devices_is_carried() -> None:
    before, state = lived(row_of([A, B], 500.0))
    found = after(row_of([B, A], 700.0), before, state)

    for part, columns in (("ledger", fields(state.ledger)), ("memory", fields(state.memory)[:3])):
        new, old = attrgetter(part)(found), attrgetter(part)(state)
        for name in [each.name for each in columns]:
            assert getattr(new, name).tolist() == getattr(old, name)[[1, 0]].tolist(), name


def test_a_device_with_other_limits_is_another_device() -> None:
    before, state = lived(row_of([A, B], 500.0))
    found = after(row_of([replace(A, max_w=500.0), B], 500.0), before, state)

    assert not found.ledger.met[0]
    assert found.ledger.ceiling_w[0] == 500.0


def test_measured_spikes_are_kept_by_the_name_of_their_domain() -> None:
    before, state = lived(row_of([A, B], 500.0))

    found = after(row_of([A], 800.0), before, state)

    assert found.spike_w.tolist() == state.spike_w.tolist()
    assert found.memory.smooth_w.tolist() == [-1.0]  # a new device is no swing


def test_nobody_rises_while_a_new_device_was_not_seen_to_obey() -> None:
    before, state = lived(row_of([A, B], 500.0))
    table = row_of([A, B, C], 500.0)
    changed = allocator_of(table, HARD)
    state = carried(before, state, changed, first_state(changed))
    had_w = state.ledger.cap_w
    readings = replace(table.readings, at_s=np.full(3, 21.0), draw_w=np.full(3, 150.0), cap_w=state.ledger.cap_w)
    state, grants = step(changed, state, readings, 21.0)

    # c counts at 400 W until it was seen to obey, which leaves nothing to raise anybody with.
    assert (grants.cap_w[:2] <= had_w[:2]).all()
    assert state.at_s == 21.0
