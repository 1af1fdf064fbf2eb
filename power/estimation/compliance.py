"""Tests of obedience: for some seconds a device is held to less than it draws, and no burst excuses it.

A burst lets a device draw more than its lease, so one that says it keeps its lease and does not looks like one that
bursts, for as long as there is room for bursts. So everyone at work is put to the test now and then, a few at a time: a
lease below its present draw, above which it may not burst. An honest device is seen below it a control delay later. One
that says that it holds the test, and draws more when its limiter and its meter had time to show it, lies.
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
"""From this share of the test's limit on a draw was held back by it: below, its work may just have ended."""
_AGAIN_S = 60.0
"""So soon one is tested again whose test showed nothing, or who is suspected again."""


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """The tests under way and those that are due; shape (devices,) each."""

    asked_w: FloatArray
    """The limit under test; infinite where there is none."""
    sequence: IntArray
    """Number of the grant that carries the test."""
    since_s: FloatArray
    said_s: FloatArray
    """Since when the device says that it holds the test."""
    due_s: FloatArray
    """Before that the next test does not begin."""
    running: bool
    """Whether there is any test."""


def no_proof(devices: int) -> Proof:
    """Nobody has proven anything: everyone is due."""
    never, none = np.full(devices, NEVER_S), np.full(devices, np.inf)
    return Proof(none, np.full(devices, -1), never, none, never, running=False)


def judged(
    proof: Proof, tree: Tree, rules: PowerRules, readings: PowerReadings, mixed: BoolArray, now_s: float
) -> tuple[Proof, BoolArray, BoolArray]:
    """The tests after these readings, whose ended now, and who lied in it.

    mixed: shape (devices,), whose phases alternate or are not told: a test there meets prompts, too, so it is longer
    until the next one.
    A test that shows nothing, because the work ended or nobody answers, ends without a verdict.
    """
    running = proof.asked_w < np.inf
    fresh = (readings.at_s >= now_s - rules.stale_s) & (readings.at_s <= now_s + rules.control_delay_s)
    says = running & fresh & (readings.sequence >= proof.sequence) & (readings.cap_w <= proof.asked_w + _MEANT_W)
    said_s = np.where(says, np.minimum(proof.said_s, readings.at_s), proof.said_s)
    within = readings.draw_w <= honest_w(tree, rules, proof.asked_w)
    lied = says & ~within & (readings.at_s >= said_s + rules.settle_s)
    lied &= readings.draw_w <= tree.table.devices.max_w * 1.5
    late = now_s - proof.since_s > (1 + rules.culprit_periods) * max(rules.control_delay_s, rules.settle_s)
    ended = running & (lied | (says & within) | late)
    if not ended.any():
        return Proof(proof.asked_w, proof.sequence, proof.since_s, said_s, proof.due_s, running=True), ended, lied
    shown = lied | (says & within & (readings.draw_w >= _PINNED_SHARE * proof.asked_w))
    shown_s = np.where(mixed, rules.prove_mixed_every_s, rules.prove_every_s)
    wait_s = np.where(shown, shown_s, min(_AGAIN_S, rules.prove_every_s))
    asked_w = np.where(ended, np.inf, proof.asked_w)
    left = Proof(
        asked_w=asked_w,
        sequence=proof.sequence,
        since_s=proof.since_s,
        said_s=np.where(ended, np.inf, said_s),
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
    """Limits of the tests that begin now, shape (devices,), infinite where none does; None for no test at all.

    bursts: shape (devices,), whose leases allow bursts: nobody else needs a test. in_debt: shape (devices,), who drew
    more than bursts explain by the controller's own account: all of them are tested at once, the others by turns.

    Only who works, is believed and in order, and holds its newest lease is tested. No test asks anybody below its
    useful floor, except those in debt whose lease is lower: without credit an honest one keeps to its lease. In a
    prompt nobody is tested who keeps to its lease: it would cost more than among tokens.
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
    """After the tests that begin now were granted, by this book."""
    new = tests_w < np.inf
    return Proof(
        asked_w=np.where(new, tests_w, proof.asked_w),
        sequence=np.where(new, book.sequence, proof.sequence),
        since_s=np.where(new, now_s, proof.since_s),
        said_s=np.where(new, np.inf, proof.said_s),
        due_s=proof.due_s,
        running=True,
    )
