"""Grants in transit: what may still be held, and which devices are late since when."""

from dataclasses import dataclass, replace

import numpy as np

from cluster.power import NEVER_S, PowerLeases
from power.safety.commitments import GrantLedger, confirmed, first_ledger, granted

PERIOD_S, DELAY_S = 2.0, 6.0


@dataclass
class World:
    """One device that is lowered by 10 W every period, and hears of it three periods late."""

    clamp_w: float = 0.0
    """It enforces no less."""

    def __post_init__(self) -> None:
        first = PowerLeases(
            np.array([400.0]), np.array([400.0]), sequence=np.array([0]), expires_at_s=np.array([NEVER_S])
        )
        yes = np.array([True])
        self.now_s = 0.0
        self.ledger = confirmed(first_ledger(first), np.array([0]), yes, yes)
        self.sent = [(0.0, 0, 400.0)]

    def lower(self) -> None:
        cap_w = self.ledger.cap_w - 10.0
        self.ledger = granted(self.ledger, cap_w, np.array([False]), np.array([True]), self.now_s)
        self.sent.append((self.now_s, int(self.ledger.sequence[0]), float(cap_w[0])))

    def hear(self) -> None:
        at_s, number, cap_w = [each for each in self.sent if each[0] <= max(self.now_s - DELAY_S, 0.0)][-1]
        holds_w = max(cap_w, self.clamp_w)
        newest = np.array([holds_w <= self.ledger.cap_w[0] and at_s >= self.ledger.granted_at_s[0]])
        keeps_mark = np.array([holds_w <= self.ledger.since_mark_w[0]])
        self.ledger = confirmed(self.ledger, np.array([number]), newest, keeps_mark)
        assert self.ledger.ceiling_w[0] >= holds_w

    def pass_time(self, seconds: float) -> GrantLedger:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += PERIOD_S
            self.hear()
            self.lower()
        return self.ledger

    @property
    def late_s(self) -> float:
        return float(self.now_s - self.ledger.due_since_s[0]) if self.ledger.open[0] else 0.0


def test_who_is_always_a_step_behind_is_not_late_and_its_ceiling_follows() -> None:
    world = World()

    for _ in range(15):
        ledger = world.pass_time(PERIOD_S)
        assert world.late_s <= 2 * DELAY_S
        if world.now_s > 2 * DELAY_S:
            assert ledger.ceiling_w[0] <= ledger.cap_w[0] + 10.0 * 2 * DELAY_S / PERIOD_S


def test_who_keeps_a_higher_limit_is_late_since_it_was_first_asked_for_less_however_often_it_is_asked_anew() -> None:
    world = World(clamp_w=345.0)

    world.pass_time(40.0)

    first_asked_s = next(at_s for at_s, _, cap_w in world.sent if cap_w < 345.0)
    assert world.ledger.ceiling_w[0] >= 345.0
    assert world.ledger.due_since_s[0] <= first_asked_s


def test_a_device_that_is_new_is_due_since_its_first_grant() -> None:
    one = np.array([0.0])
    first = first_ledger(PowerLeases(one + 300.0, one + 300.0, np.array([-1]), one + NEVER_S))

    ledger = granted(first, one + 250.0, np.array([False]), np.array([True]), 1000.0)

    assert ledger.due_since_s == [1000.0]
    assert ledger.ceiling_w == [300.0]


def test_who_was_lowered_and_keeps_it_may_hold_no_more_than_the_newest_grant() -> None:
    world = World()
    world.pass_time(8.0)

    for _ in range(8):
        world.now_s += PERIOD_S
        world.hear()

    assert world.ledger.settled
    assert world.ledger.ceiling_w[0] == world.ledger.cap_w[0]


def lowered() -> GrantLedger:
    """One device that had 400 W, was granted 300 W with number 5, and has confirmed nothing since."""
    leases = PowerLeases(np.array([400.0]), np.array([400.0]), np.array([4]), np.array([NEVER_S]))
    yes = np.array([True])
    ledger = confirmed(first_ledger(leases), np.array([4]), yes, yes)
    return granted(ledger, np.array([300.0]), np.array([False]), yes, 100.0)


def ceiling_w(ledger: GrantLedger, heard: int, *, obeys: bool, keeps: bool) -> float:
    made = confirmed(ledger, np.array([heard]), np.array([obeys]), np.array([keeps]))
    return float(made.ceiling_w[0])


def test_a_grant_is_confirmed_by_a_device_that_has_heard_it_and_obeys_it() -> None:
    ledger = lowered()

    assert ceiling_w(ledger, 5, obeys=True, keeps=True) == 300.0
    assert ceiling_w(ledger, 4, obeys=True, keeps=True) == 400.0, "it may draw little and raise itself again"
    assert ceiling_w(ledger, 5, obeys=False, keeps=False) == 400.0, "its agent has it, the device does not keep it"


def test_a_device_that_keeps_to_less_without_having_heard_the_grant_may_hold_an_older_one() -> None:
    """The mark is the first grant that is not yet obeyed: only when it was heard, older grants no longer matter."""
    yes = np.array([True])
    twice = granted(lowered(), np.array([250.0]), np.array([False]), yes, 102.0)

    assert ceiling_w(twice, 4, obeys=False, keeps=True) == 400.0
    assert ceiling_w(twice, 5, obeys=False, keeps=True) == 300.0


def test_a_confirmation_never_raises_a_ceiling() -> None:
    ledger = replace(lowered(), ceiling_w=np.array([280.0]))

    assert ceiling_w(ledger, 5, obeys=True, keeps=True) == 280.0
    assert ceiling_w(ledger, 5, obeys=False, keeps=True) == 280.0


def test_a_grant_that_was_sent_counts_at_once_and_a_lower_one_does_not_lower_the_ceiling() -> None:
    assert lowered().ceiling_w.tolist() == [400.0]
    raised = granted(lowered(), np.array([500.0]), np.array([False]), np.array([True]), 101.0)
    assert raised.ceiling_w.tolist() == [500.0]


def test_every_grant_has_a_higher_number() -> None:
    ledger = granted(lowered(), np.array([350.0]), np.array([False]), np.array([True]), 101.0)

    assert ledger.sequence.tolist() == [6]
