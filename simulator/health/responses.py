"""Responses to faults of a training job, for comparison: time-outs and people, time-outs and restarts, remediation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

import numpy as np

from simulator.health.fault_process import DAY_S, SLOW, Kind, NodeFault, faults
from simulator.health.training_run import Setup, TrainingRun

TIMEOUT_S = 600.0
"""Default time-out of NCCL's watchdog in PyTorch."""
TRIES = 3
"""Restarts on the same nodes before a person is called."""


@dataclass(slots=True)
class Timeline:
    """Events to come."""

    run: TrainingRun
    _heap: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _number: "count[int]" = field(default_factory=count)

    def at(self, at_s: float, do: Callable[[], None]) -> None:
        heappush(self._heap, (max(at_s, self.run.now_s), next(self._number), do))

    def play(self, until_s: float) -> None:
        while self._heap and self._heap[0][0] < until_s:
            at_s, _, do = heappop(self._heap)
            self.run.advance(at_s)
            do()
        self.run.advance(until_s)


class Response(Protocol):
    """What acts on a run."""

    def on_stop(self, run: TrainingRun, timeline: Timeline) -> None:
        """The job stands still from now on."""

    def on_change(self, run: TrainingRun, timeline: Timeline) -> None:
        """A fault began or ended, or a restart ended well."""


def played(setup: Setup, response: Response, seed: int, *, slow: bool = True) -> TrainingRun:
    """The run of one job under one response; the same seed brings the same faults to each."""
    fleet = setup.nodes + setup.spares
    run = TrainingRun(setup, np.random.default_rng([seed, 62]), seats=list(range(setup.nodes)))
    timeline = Timeline(run)

    def struck(fault: NodeFault) -> None:
        was = run.stopped
        run.strike(fault)
        if fault.kind in SLOW:
            timeline.at(fault.at_s + fault.for_s, lambda: ended(fault))
        if run.stopped is not None and was is None:
            response.on_stop(run, timeline)
        response.on_change(run, timeline)

    def ended(fault: NodeFault) -> None:
        run.end_slow(fault)
        response.on_change(run, timeline)

    for each in faults(fleet, setup.days, setup.leaf, seed, slow=slow):
        timeline.at(each.at_s, lambda fault=each: struck(fault))  # type: ignore[misc]
    timeline.play(setup.days * DAY_S)
    return run


def restart(run: TrainingRun, timeline: Timeline, response: Response, seats: list[int], for_s: float) -> None:
    """Restarts the job and goes on when it has come up."""
    run.restart(seats, for_s)
    ends_s = run.now_s + for_s

    def up() -> None:
        if run.down_until_s != ends_s:
            return
        run.started()
        if run.stopped is not None:
            response.on_stop(run, timeline)
        response.on_change(run, timeline)

    timeline.at(ends_s, up)


def swapped(run: TrainingRun, out: set[int]) -> list[int]:
    """Seats without some nodes, filled up with sound spares; short where there are too few."""
    kept = [node for node in run.seats if node not in out]
    fleet = range(run.setup.nodes + run.setup.spares)
    taken = set(run.seats) | out
    free = [node for node in fleet if node not in taken and not run.is_unsound(node)]
    return kept + free[: run.setup.nodes - len(kept)]


def unsound_seats(run: TrainingRun) -> set[int]:
    return {node for node in run.seats if run.is_unsound(node)}


@dataclass(slots=True)
class Manual:
    """The job ends by itself or by a time-out; a person finds the node, replaces it and restarts."""

    def on_stop(self, run: TrainingRun, timeline: Timeline) -> None:
        assert run.stopped is not None  # noqa: S101 - the protocol says so
        stop = run.stopped
        timeline.at(run.now_s + _noticed_s(stop) + run.setup.person_s, lambda: by_hand(run, timeline, self, stop))

    def on_change(self, run: TrainingRun, timeline: Timeline) -> None:
        """Slow nodes go unseen."""


@dataclass(slots=True)
class RestartOnTimeout:
    """The job is restarted on its nodes by itself, and on others in place of nodes that are gone; then a person."""

    tries: int = 0

    def on_stop(self, run: TrainingRun, timeline: Timeline) -> None:
        assert run.stopped is not None  # noqa: S101 - the protocol says so
        stop, noticed_s = run.stopped, _noticed_s(run.stopped)
        if self.tries < TRIES:
            self.tries += 1
            timeline.at(run.now_s + noticed_s, lambda: self._again(run, timeline, stop))
        else:
            self.tries = 0
            timeline.at(run.now_s + noticed_s + run.setup.person_s, lambda: by_hand(run, timeline, self, stop))

    def _again(self, run: TrainingRun, timeline: Timeline, stop: NodeFault) -> None:
        if run.stopped is not stop:
            return
        gone = {node for node in unsound_seats(run) if run.broken_by[node].kind is Kind.NODE_LOST}
        seats = swapped(run, gone)
        if len(seats) < run.setup.nodes:
            timeline.at(run.now_s + 600.0, lambda: self._again(run, timeline, stop))
            return
        restart(run, timeline, self, seats, run.setup.restart_s if gone else run.setup.in_place_s)

    def on_change(self, run: TrainingRun, timeline: Timeline) -> None:  # noqa: ARG002 - the protocol's
        if run.stopped is None and run.down_until_s is None:
            self.tries = 0


def _noticed_s(stop: NodeFault) -> float:
    return 1.0 if stop.kind in (Kind.CRASH, Kind.PROGRAM) else TIMEOUT_S


def by_hand(run: TrainingRun, timeline: Timeline, response: Response, stop: NodeFault) -> None:
    """A person takes out what is broken; without spares, the job waits for a repair."""
    if run.stopped is not stop:
        return
    seats = swapped(run, unsound_seats(run))
    if len(seats) < run.setup.nodes:
        timeline.at(run.now_s + 600.0, lambda: by_hand(run, timeline, response, stop))
        return
    restart(run, timeline, response, seats, run.setup.restart_s)
