"""Uncapped demand: what each device would draw without its cap, as far as readings show it, and how much draws rise."""

from dataclasses import replace
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, any_of
from cluster.power import (
    NEVER_S,
    PHASE_COMPUTE_BOUND,
    PHASE_IDLE,
    PHASE_MEMORY_BOUND,
    PHASE_UNKNOWN,
    PowerReadings,
)
from power.allocator.state import MEANT_W, Allocator, AllocatorState
from power.estimation.commitments import Book
from power.estimation.estimator import OVER_CAP, Estimate, honest_w
from power.estimation.known_need import KnownNeed, is_known, learnt
from power.estimation.spike import Spikes, with_draw


def smoothed(allocator: Allocator, state: AllocatorState, draw_w: FloatArray, now_s: float) -> FloatArray:
    """Smoothed draw from which needs are derived; a first reading is its own mean.

    A draw that no device can have counts as the highest limit: one broken reading must not stay in the mean for ever.
    """
    draw_w = np.fmax(np.fmin(draw_w, allocator.appetite.most_w), 0.0)
    if state.at_s == NEVER_S:
        return draw_w
    part = 1 - exp(-max(now_s - state.at_s, 0.0) / allocator.rules.mean_s)
    return state.mean_w + part * (draw_w - state.mean_w)


def measured(allocator: Allocator, state: AllocatorState, drawn_w: FloatArray, now_s: float) -> Spikes:
    """Spikes of believed readings alone: a device that falls silent counts for more at once without drawing more.

    The recovery after a hardware brake releases is not a rise of needs either.
    """
    rules, spikes = allocator.rules, state.spikes
    if state.braking.holds:
        return replace(spikes, window=())
    for at_s, watts in state.waited.drawn_w if state.waited is not None else ():
        spikes = with_draw(spikes, watts, at_s, rules.control_delay_s, rules.spike_memory_s, rules.mean_s)
    return with_draw(spikes, drawn_w, now_s, rules.control_delay_s, rules.spike_memory_s, rules.mean_s)


def obeyed(allocator: Allocator, book: Book, readings: PowerReadings, seen: Estimate) -> tuple[BoolArray, BoolArray]:
    """Devices seen to obey the newest grant, and devices seen to obey the largest since the mark (`Book`).

    Obeying means: the device reports an enforced limit no higher, draws no more, and is believed.
    """
    if book.settled:
        return seen.believed, seen.believed
    newest = _keeps(allocator, book.cap_w, book.burst, readings) & (readings.at_s >= book.granted_at_s)
    since_mark = _keeps(allocator, book.since_mark_w, allocator.bursts, readings)
    if seen.clean:
        return newest, since_mark
    honest = seen.believed & (seen.fault != OVER_CAP)
    return newest & honest, since_mark & honest


def _keeps(allocator: Allocator, cap_w: FloatArray, bursts: BoolArray, readings: PowerReadings) -> BoolArray:
    tree = allocator.tree
    may_draw_w = np.where(bursts, np.maximum(cap_w, tree.table.devices.max_w), cap_w)
    draws_no_more = readings.draw_w <= honest_w(tree, allocator.rules, may_draw_w)
    keeps: BoolArray = (readings.cap_w <= cap_w + MEANT_W) & draws_no_more
    return keeps


def needs(
    allocator: Allocator,
    book: Book,
    seen: Estimate,
    readings: PowerReadings,
    mean_w: FloatArray,
    state: AllocatorState,
) -> tuple[FloatArray, KnownNeed]:
    """What each device would draw without its cap, and what was learnt of that.

    A device held back by its cap is tried at what it usually needs while working, or at more. A device that starts to
    work is known to need that soon. Without bursts, a device that was recently content with some power is tried at that
    first.

    A need is kept while it moves little, so that a ripple of the draw moves no caps. It is also kept while the newest
    cap is too young to show in the readings: otherwise a device that was just given more would seem not to use it.
    """
    rules, appetite, before_w = allocator.rules, allocator.appetite, state.need_w
    cap_w = np.where(readings.cap_w > 0, np.minimum(readings.cap_w, book.ceiling_w), book.cap_w)
    brief = seen.believed & book.burst & (readings.phase != PHASE_MEMORY_BOUND)
    draw_w = np.where(brief, mean_w, seen.draw_w)
    band_w = rules.band_share * appetite.most_w
    held_back = (draw_w >= rules.pinned_share * cap_w) & (readings.phase != PHASE_IDLE)
    computes = readings.phase == PHASE_COMPUTE_BOUND
    more_w = np.where(computes & ~brief, 1.0, rules.probe_share) * appetite.most_w  # a burst covers a prompt
    wants_w = np.where(held_back, np.maximum(cap_w + more_w, state.usual_w), draw_w * (1 + rules.margin_share))
    if any_of(begins := computes & brief):
        has_it = cap_w >= state.usual_w - band_w
        soon_w = np.where(has_it, np.minimum(cap_w, state.usual_w), state.usual_w)
        wants_w = np.where(begins, np.maximum(wants_w, soon_w), wants_w)
    wants_w = np.minimum(np.maximum(wants_w, appetite.floor_w), appetite.most_w)
    shows = (readings.at_s > book.granted_at_s + 2 * rules.control_delay_s) | (
        draw_w < rules.pinned_share * book.before_w
    )
    known = state.known
    if not allocator.all_burst:
        knows = held_back & ~book.burst & is_known(known, readings, cap_w, rules.known_s)
        wants_w = np.where(knows, known.need_w, wants_w)
        rests = draw_w <= mean_w * (1 + rules.margin_share)  # the mean lags a raised limit
        known = learnt(known, readings, wants_w, seen.believed & ~held_back & shows & rests)
    rises = (wants_w > before_w + band_w) | ((wants_w > before_w) & (draw_w > before_w))
    falls = (wants_w < before_w - band_w) & shows
    return np.where(rises | falls, wants_w, before_w), known


def rises(allocator: Allocator, state: AllocatorState, need_w: FloatArray, now_s: float) -> FloatArray:
    """Rate at which each device suddenly needs much more: events per second, older ones forgotten."""
    if state.at_s == NEVER_S:
        return state.rises_per_s
    memory_s = allocator.rules.rise_memory_s
    kept = state.rises_per_s * exp(-max(now_s - state.at_s, 0.0) / memory_s)
    return kept + (need_w - state.need_w > 0.1 * allocator.appetite.most_w) / memory_s


def usual(
    allocator: Allocator, state: AllocatorState, need_w: FloatArray, readings: PowerReadings, now_s: float
) -> FloatArray:
    """What each device needs during token generation; where phases are not reported, its present need.

    This is its draw with its margin, unless its cap holds it back: a need is kept up while a cap is young.
    """
    rules, appetite, phase = allocator.rules, allocator.appetite, readings.phase
    if state.at_s == NEVER_S:
        return state.usual_w
    steady = (phase == PHASE_MEMORY_BOUND) | (phase == PHASE_UNKNOWN)
    part = 1 - exp(-max(now_s - state.at_s, 0.0) / (4 * rules.mean_s))
    free = readings.draw_w < rules.pinned_share * readings.cap_w
    wants_w = np.maximum(readings.draw_w * (1 + rules.margin_share), appetite.floor_w)
    shown_w = np.where(free, np.minimum(wants_w, need_w), need_w)
    return np.where(steady, state.usual_w + part * (shown_w - state.usual_w), state.usual_w)


def without_work(allocator: Allocator, need_w: FloatArray, phase: IntArray) -> FloatArray:
    """Needs in which an idle device that may burst does without its floor (`pieces`).

    It keeps the power that it has until others need it, while every domain is far from its budget.
    """
    appetite = allocator.appetite
    idle = allocator.bursts & (phase == PHASE_IDLE)
    return np.where(idle, appetite.base_w + (need_w - appetite.floor_w), need_w)
