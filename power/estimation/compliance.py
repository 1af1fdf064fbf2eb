"""Compliance tests: for some seconds a device is limited to less than it draws, and no burst excuses a higher draw.

A burst lets a device draw more than its lease. So a device that falsely reports to keep its lease looks like a bursting
one, for as long as there is room for bursts. Therefore every working device is tested now and then, a few at a time: it
gets a lease below its present draw and may not burst above it. An honest device is seen below it one control delay
later. A device misreports if it confirms the test's limit and still draws more after its limiter and its meter had time
to show the effect.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import NEVER_S, PHASE_COMPUTE_BOUND, PHASE_IDLE, PowerReadings
from power.domains.tree import Tree
from power.estimation.commitments import Book
from power.estimation.estimator import FINE, Estimate, Trust, honest_w
from power.rules import PowerRules

_MEANT_W = 1.0
_PINNED_SHARE = 0.9
"""Fraction of the test's limit from which a draw was held back by it; below, the work may simply have ended."""
_AGAIN_S = 60.0
"""Wait before the next test of a device whose test was inconclusive, or that is suspected again."""


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """Running tests and the times of the next ones; shape (devices,) each."""

    asked_w: FloatArray
    """Limit under test; infinite where no test is running."""
    sequence: IntArray
    """Sequence number of the grant that carries the test."""
    since_s: FloatArray
    confirmed_s: FloatArray
    """Instant from which the device reports to hold the test's limit."""
    due_s: FloatArray
    """Earliest instant of the next test."""
    running: bool
    """Whether any test is running."""


def no_proof(devices: int) -> Proof:
    """The initial state: no device has been tested, so all are due."""
    never, none = np.full(devices, NEVER_S), np.full(devices, np.inf)
    return Proof(none, np.full(devices, -1), never, none, never, running=False)


def judged(
    proof: Proof, tree: Tree, rules: PowerRules, readings: PowerReadings, mixed: BoolArray, now_s: float
) -> tuple[Proof, BoolArray, BoolArray]:
    """The tests after these readings, the devices whose tests ended now, and those that were found to misreport.

    mixed: shape (devices,), devices whose phases alternate or are not reported: a test there also hits prompts, so the
    interval to the next one is longer.
    A test that shows nothing, because the work ended or the device does not answer, ends without a verdict.
    """
    running = proof.asked_w < np.inf
    fresh = (readings.at_s >= now_s - rules.stale_s) & (readings.at_s <= now_s + rules.control_delay_s)
    confirms = running & fresh & (readings.sequence >= proof.sequence) & (readings.cap_w <= proof.asked_w + _MEANT_W)
    confirmed_s = np.where(confirms, np.minimum(proof.confirmed_s, readings.at_s), proof.confirmed_s)
    within = readings.draw_w <= honest_w(tree, rules, proof.asked_w)
    lied = confirms & ~within & (readings.at_s >= confirmed_s + rules.settle_s)
    lied &= readings.draw_w <= tree.table.devices.max_w * 1.5
    late = now_s - proof.since_s > (1 + rules.culprit_periods) * max(rules.control_delay_s, rules.settle_s)
    ended = running & (lied | (confirms & within) | late)
    if not ended.any():
        return Proof(proof.asked_w, proof.sequence, proof.since_s, confirmed_s, proof.due_s, running=True), ended, lied
    shown = lied | (confirms & within & (readings.draw_w >= _PINNED_SHARE * proof.asked_w))
    shown_s = np.where(mixed, rules.prove_mixed_every_s, rules.prove_every_s)
    wait_s = np.where(shown, shown_s, min(_AGAIN_S, rules.prove_every_s))
    asked_w = np.where(ended, np.inf, proof.asked_w)
    left = Proof(
        asked_w=asked_w,
        sequence=proof.sequence,
        since_s=proof.since_s,
        confirmed_s=np.where(ended, np.inf, confirmed_s),
        due_s=np.where(ended, now_s + wait_s, proof.due_s),
        running=bool((asked_w < np.inf).any()),
    )
    return left, ended, lied


def begun(
    proof: Proof,
    tree: Tree,
    rules: PowerRules,
    *,
    bursts: BoolArray,
    book: Book,
    trust: Trust,
    seen: Estimate,
    readings: PowerReadings,
    in_debt: BoolArray,
    now_s: float,
) -> FloatArray | None:
    """Limits of the tests that begin now, shape (devices,), infinite where none does; None when no test begins.

    bursts: shape (devices,), devices whose leases allow bursts; others need no test. in_debt: shape (devices,), devices
    that drew more than bursts explain by the controller's own account. All of these are tested at once, the others in
    turn.

    A device is tested only if it works, is believed and without fault, and holds its newest lease. No test goes below
    the useful floor, except for a device in debt whose lease is lower: without credit an honest one keeps to its lease.
    During a prompt, a device that keeps to its lease is not tested: that would cost more than during token generation.
    """
    due = proof.due_s <= now_s
    if rules.prove_every_s == 0 or not (due.any() or in_debt.any()):
        return None
    devices, draw_w = tree.table.devices, readings.draw_w
    asked_w = np.minimum(book.cap_w, (1 - rules.prove_cut_share) * draw_w)
    asked_w = np.floor(np.maximum(asked_w, np.maximum(devices.floor_w, np.minimum(book.cap_w, trust.least_w))))
    asked_w = np.where(in_debt, np.minimum(asked_w, book.cap_w), asked_w)
    can = bursts & book.burst & ~book.open & seen.believed & (seen.fault == FINE) & devices.managed
    can &= (readings.phase != PHASE_IDLE) & (asked_w <= book.cap_w) & (proof.asked_w == np.inf)
    can &= (readings.phase != PHASE_COMPUTE_BOUND) | (draw_w > book.cap_w)
    can &= draw_w > honest_w(tree, rules, asked_w)
    suspects = can & in_debt & (now_s - proof.since_s >= _AGAIN_S)
    by_turns = np.flatnonzero(can & due & ~suspects)
    free = max(1, int(rules.prove_share * tree.devices)) - int((proof.asked_w < np.inf).sum())
    chosen = suspects.copy()
    chosen[by_turns[np.argsort(proof.due_s[by_turns], kind="stable")[: max(free, 0)]]] = True
    return np.where(chosen, asked_w, np.inf) if chosen.any() else None


def with_tests(proof: Proof, tests_w: FloatArray, book: Book, now_s: float) -> Proof:
    """State after the tests that begin now were granted and recorded in this book."""
    new = tests_w < np.inf
    return Proof(
        asked_w=np.where(new, tests_w, proof.asked_w),
        sequence=np.where(new, book.sequence, proof.sequence),
        since_s=np.where(new, now_s, proof.since_s),
        confirmed_s=np.where(new, np.inf, proof.confirmed_s),
        due_s=proof.due_s,
        running=True,
    )
