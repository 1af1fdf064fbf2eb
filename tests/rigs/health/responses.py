"""Responses to faults of a training job, for comparison: time-outs and people, time-outs and restarts, remediation."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Protocol

import numpy as np

from health.remediation.decision import SAVED_S, decide
from health.remediation.facts import (
    FaultEvidence,
    JobFacts,
    NodeFacts,
    NodeKey,
    Origin,
    OurTaint,
    PodFacts,
    RemedyPolicy,
    Situation,
)
from health.remediation.incidents import Incident, IncidentPhase, JobDo, JobIntent, NodeDo
from health.remediation.lifecycle import is_open_question
from health.verdicts.verdict import Part, Syndrome
from tests.rigs.health.training_run import DAY_S, SLOW, NodeFault, NodeFaultKind, Setup, TrainingRun, faults

TIMEOUT_S = 600.0
"""Default time-out of NCCL's watchdog in PyTorch."""
TRIES = 3
"""Restarts on the same nodes before a person is called."""


@dataclass(slots=True)
class EventQueue:
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


class FaultResponse(Protocol):
    """What acts on a run."""

    def on_stop(self, run: TrainingRun, timeline: EventQueue) -> None:
        """The job stands still from now on."""

    def on_change(self, run: TrainingRun, timeline: EventQueue) -> None:
        """A fault began or ended, or a restart ended well."""


def played(setup: Setup, response: FaultResponse, seed: int, *, slow: bool = True) -> TrainingRun:
    """The run of one job under one response; the same seed brings the same faults to each."""
    fleet = setup.nodes + setup.spares
    run = TrainingRun(setup, np.random.default_rng([seed, 62]), seats=list(range(setup.nodes)))
    timeline = EventQueue(run)

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


def restart(run: TrainingRun, timeline: EventQueue, response: FaultResponse, seats: list[int], for_s: float) -> None:
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

    def on_stop(self, run: TrainingRun, timeline: EventQueue) -> None:
        assert run.stopped is not None
        stop = run.stopped
        timeline.at(run.now_s + _noticed_s(stop) + run.setup.person_s, lambda: by_hand(run, timeline, self, stop))

    def on_change(self, run: TrainingRun, timeline: EventQueue) -> None:
        """Slow nodes go unseen."""


@dataclass(slots=True)
class RestartOnTimeout:
    """The job is restarted on its nodes by itself, and on others in place of nodes that are gone; then a person."""

    tries: int = 0

    def on_stop(self, run: TrainingRun, timeline: EventQueue) -> None:
        assert run.stopped is not None
        stop, noticed_s = run.stopped, _noticed_s(run.stopped)
        if self.tries < TRIES:
            self.tries += 1
            timeline.at(run.now_s + noticed_s, lambda: self._again(run, timeline, stop))
        else:
            self.tries = 0
            timeline.at(run.now_s + noticed_s + run.setup.person_s, lambda: by_hand(run, timeline, self, stop))

    def _again(self, run: TrainingRun, timeline: EventQueue, stop: NodeFault) -> None:
        if run.stopped is not stop:
            return
        gone = {node for node in unsound_seats(run) if run.broken_by[node].kind is NodeFaultKind.NODE_LOST}
        seats = swapped(run, gone)
        if len(seats) < run.setup.nodes:
            timeline.at(run.now_s + 600.0, lambda: self._again(run, timeline, stop))
            return
        restart(run, timeline, self, seats, run.setup.restart_s if gone else run.setup.in_place_s)

    def on_change(self, run: TrainingRun, timeline: EventQueue) -> None:
        if run.stopped is None and run.down_until_s is None:
            self.tries = 0


def _noticed_s(stop: NodeFault) -> float:
    return 1.0 if stop.kind in (NodeFaultKind.CRASH, NodeFaultKind.PROGRAM) else TIMEOUT_S


def asks_a_person(incident: Incident) -> bool:
    """Whether somebody who watches incidents comes: one is left to people, or waits and is no question for a probe."""
    waits = incident.waits_for != ""
    stuck = incident.phase is IncidentPhase.SUSPECTED and incident.stops and waits and not is_open_question(incident)
    limited = incident.phase is IncidentPhase.ACTING and waits
    is_of_domain = incident.domain != "" and incident.is_open
    return incident.phase is IncidentPhase.PAGED or stuck or limited or is_of_domain


def by_hand(run: TrainingRun, timeline: EventQueue, response: FaultResponse, stop: NodeFault) -> None:
    """A person takes out what is broken; without spares, the job waits for a repair."""
    if run.stopped is not stop:
        return
    seats = swapped(run, unsound_seats(run))
    if len(seats) < run.setup.nodes:
        timeline.at(run.now_s + 600.0, lambda: by_hand(run, timeline, response, stop))
        return
    restart(run, timeline, response, seats, run.setup.restart_s)


JOB = "train/large"
AGAIN_S = 60.0
"""Time between two decisions while something is going on."""
SYNDROMES = {
    NodeFaultKind.CRASH: Syndrome.DEAD_PROCESS,
    NodeFaultKind.HANG: Syndrome.OTHER_HANG,
    NodeFaultKind.LINK_HANG: Syndrome.COMMUNICATION_HANG,
    NodeFaultKind.NODE_LOST: Syndrome.DEAD_PROCESS,
    NodeFaultKind.SWITCH: Syndrome.COMMUNICATION_HANG,
    NodeFaultKind.PROGRAM: Syndrome.DEAD_PROCESS,
    NodeFaultKind.SLOW_COMPUTE: Syndrome.OTHER_SLOW,
    NodeFaultKind.SLOW_NIC: Syndrome.COMMUNICATION_SLOW,
    NodeFaultKind.SLOW_LINK: Syndrome.COMMUNICATION_SLOW,
}
PARTS = {
    NodeFaultKind.NODE_LOST: Part.NODE,
    NodeFaultKind.SWITCH: Part.NIC,
    NodeFaultKind.SLOW_NIC: Part.NIC,
    NodeFaultKind.SLOW_LINK: Part.LINK,
}


@dataclass(slots=True)
class Remediated:
    """State of the controller, and what it has done to nodes."""

    policy: RemedyPolicy = field(default_factory=RemedyPolicy)
    incidents: tuple[Incident, ...] = ()
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    pods: tuple[PodFacts, ...] = ()
    number: int = 0
    """Number of the run."""
    started_s: float = 0.0
    restarted_s: list[float] = field(default_factory=list)
    last_evidence: FaultEvidence | None = None
    """Verdict on the stop that stands."""
    seen_slow: dict[int, tuple[float, NodeFault]] = field(default_factory=dict)
    """Slow-downs by the identity of their fault, with when each is first seen."""
    testing: set[tuple[str, float]] = field(default_factory=set)
    person_called_for: NodeFault | None = None
    moving: int = -1
    """Number of the run that is to move at its next checkpoint."""
    waking_s: float = -inf
    """Next decision without an event."""
    decided: dict[str, int] = field(default_factory=dict)
    """Restarts and taints, by kind."""

    def on_stop(self, run: TrainingRun, timeline: EventQueue) -> None:
        self._know(run)
        assert run.stopped is not None
        stop, setup = run.stopped, run.setup
        dies = stop.kind in (NodeFaultKind.CRASH, NodeFaultKind.NODE_LOST, NodeFaultKind.PROGRAM)
        seen_s = run.now_s + (setup.death_seen_s if dies else setup.hang_seen_s)
        timeline.at(seen_s, lambda: self._verdict(run, timeline, stop))

    def on_change(self, run: TrainingRun, timeline: EventQueue) -> None:
        self._know(run)
        seen = {id(each): each for each in run.slow}
        ended = [self.seen_slow.pop(key)[1] for key in set(self.seen_slow) - set(seen)]
        if ended and run.stopped is None and run.down_until_s is None:
            over = [replace(self._about(run, fault, [fault.node]), over=True) for fault in ended]
            self.incidents = decide(self._situation(run), self.incidents, over, self.policy).incidents
            self._decide(run, timeline)
        for key, fault in seen.items():
            if key not in self.seen_slow and run.slow_share > 0:
                self.seen_slow[key] = (run.now_s + run.setup.slow_seen_s, fault)
                timeline.at(run.now_s + run.setup.slow_seen_s, lambda: self._decide(run, timeline))

    def _know(self, run: TrainingRun) -> None:
        """Nodes and first run, before anything happens."""
        if not self.nodes:
            for number in range(run.setup.nodes + run.setup.spares):
                name = f"n{number}"
                self.nodes[name] = NodeFacts(NodeKey(name, name), domains=(f"switch/{number // run.setup.leaf}",))
            self._new_pods(run)

    def _new_pods(self, run: TrainingRun) -> None:
        self.pods = tuple(PodFacts(f"{self.number}-{node}", f"n{node}", run.now_s, 8) for node in run.seats)

    def _verdict(self, run: TrainingRun, timeline: EventQueue, stop: NodeFault) -> None:
        """What the analyser says of a stop: right, wrong, or nothing until the probe has run."""
        if run.stopped is not stop:
            return
        luck = run.random.random()
        if stop.visible or luck < run.setup.named_share:
            self.last_evidence = self._about(run, stop, [stop.node])
        elif luck < run.setup.named_share + run.setup.wrong_share:
            self.last_evidence = self._about(run, stop, [int(run.random.choice(run.seats))])
        else:
            self.last_evidence = replace(self._about(run, stop, []), part=Part.NOTHING, probe="stacks", confidence=0.5)
            timeline.at(run.now_s + self.policy.confirm_s - 1.0, lambda: self._probed(run, timeline, stop))
            timeline.at(run.now_s + self.policy.confirm_s + 1.0, lambda: self._decide(run, timeline))
        self._decide(run, timeline)

    def _probed(self, run: TrainingRun, timeline: EventQueue, stop: NodeFault) -> None:
        if run.stopped is stop and run.random.random() < run.setup.probe_share:
            self.last_evidence = self._about(run, stop, [stop.node])
            self._decide(run, timeline)

    def _about(self, run: TrainingRun, fault: NodeFault, blamed: list[int]) -> FaultEvidence:
        part = PARTS.get(fault.kind, Part.RANK)
        if fault.kind is NodeFaultKind.LINK_HANG:
            part = Part.NIC if fault.visible else Part.LINK
        if part is Part.LINK and blamed == [fault.node] and fault.peer in run.seats:
            blamed = [fault.node, fault.peer]
        elif part is Part.LINK:
            part = Part.NIC
        since_s = max(fault.at_s, self.started_s)
        return FaultEvidence(
            job=JOB,
            incarnation=str(self.number),
            syndrome=SYNDROMES[fault.kind],
            part=part,
            nodes=tuple(NodeKey(f"n{node}", f"n{node}") for node in blamed),
            pods=tuple(f"{self.number}-{node}" for node in blamed),
            since_s=min(since_s, run.now_s),
            at_s=run.now_s,
            confidence=0.95,
            source=Origin.NODE if fault.visible else Origin.JOB,
            slow_share=fault.slow_share,
            program_error=fault.kind is NodeFaultKind.PROGRAM,
        )

    def _situation(self, run: TrainingRun) -> Situation:
        setup = run.setup
        job = JobFacts(
            name=JOB,
            incarnation=str(self.number),
            started_s=self.started_s,
            pods=self.pods,
            min_available=setup.least or setup.nodes,
            restart_s=setup.restart_s,
            in_place_restart_s=setup.in_place_s,
            checkpoint_at_s=run.checkpoint_at_s,
            checkpoint_interval_s=setup.interval_s,
            checkpoint_save_s=setup.save_s,
            restarted_s=tuple(self.restarted_s[-20:]),
            progressed_s=run.now_s if run.stopped is None and run.down_until_s is None else -inf,
        )
        return Situation(run.now_s, {JOB: job}, self.nodes, tuple(f"n{node}" for node in self._spares(run)))

    def _spares(self, run: TrainingRun) -> list[int]:
        """Free nodes that look sound: a broken one that nobody sees is among them."""
        used = set(run.seats)
        return [
            node
            for node in range(run.setup.nodes + run.setup.spares)
            if node not in used
            and self.nodes[f"n{node}"].taint is None
            and not (run.is_unsound(node) and run.broken_by[node].visible)
        ]

    def _decide(self, run: TrainingRun, timeline: EventQueue) -> None:
        """Decides and carries out until nothing new is to be done, as cycles of the controller would."""
        for _ in range(4):
            found = []
            if run.stopped is not None and self.last_evidence is not None:
                found.append(replace(self.last_evidence, at_s=run.now_s))
                for node in run.seats:
                    fault = run.broken_by.get(node)
                    if fault is not None and fault.visible and run.is_unsound(node):
                        found.append(self._about(run, fault, [node]))
            if run.stopped is None and run.down_until_s is None:
                on = set(run.seats)
                for seen_s, fault in self.seen_slow.values():
                    if seen_s <= run.now_s and fault.node in on and (fault.peer < 0 or fault.peer in on):
                        found.append(self._about(run, fault, [fault.node]))
            decision = decide(self._situation(run), self.incidents, found, self.policy)
            is_settled = decision.incidents == self.incidents
            self.incidents = decision.incidents
            for intent in decision.nodes:
                there = self.nodes[intent.node.name]
                if intent.do is NodeDo.TAINT:
                    self._count("quarantined" if run.is_unsound(int(there.key.name[1:])) else "quarantined by mistake")
                    there = replace(there, taint=OurTaint(intent.incident, intent.generation, run.now_s))
                    timeline.at(run.now_s + 1.0, lambda: self._decide(run, timeline))
                elif intent.do is NodeDo.PROBATION and there.taint is not None:
                    there = replace(there, taint=replace(there.taint, on_probation=True))
                    timeline.at(run.now_s + self.policy.probation_s + 1.0, lambda: self._decide(run, timeline))
                    self._work_on_probation(run, timeline, int(there.key.name[1:]))
                elif intent.do is NodeDo.UNTAINT:
                    there = replace(there, taint=None)
                self.nodes[intent.node.name] = there
            for each in decision.incidents:
                if each.phase is IncidentPhase.QUARANTINED:
                    for key in each.nodes:
                        self._test(run, timeline, key.name, (each.id, each.phase_since_s))
            for restart in decision.jobs:
                self._on_job(run, timeline, restart)
            if any(map(asks_a_person, decision.incidents)):
                self._call_a_person(run, timeline)
            if is_settled:
                break
        if self._is_busy(run):
            timeline.at(run.now_s + AGAIN_S, lambda: self._decide(run, timeline))

    def _is_busy(self, run: TrainingRun) -> bool:
        """Whether time alone may change the decision; one such wake-up stands at a time."""
        going_on = run.stopped is not None or run.slow_share > 0
        if not going_on or self.waking_s > run.now_s:
            return False
        self.waking_s = run.now_s + AGAIN_S
        return True

    def _test(self, run: TrainingRun, timeline: EventQueue, name: str, key: tuple[str, float]) -> None:
        """Passes when the node is sound again; sometimes before."""
        if key in self.testing:
            return
        self.testing.add(key)
        missed = run.random.random() < run.setup.test_misses
        sound_s = run.now_s if missed else max(run.unsound_until_s.get(int(name[1:]), 0.0), run.now_s)

        def passed() -> None:
            self.nodes[name] = replace(self.nodes[name], tested_s=run.now_s)
            self._decide(run, timeline)

        timeline.at(sound_s + run.setup.test_s, passed)

    def _work_on_probation(self, run: TrainingRun, timeline: EventQueue, node: int) -> None:
        """Work of low value fails within an hour on a node that is broken still, and the large job is spared."""
        if run.is_unsound(node) and self.policy.probation_s >= 3600.0:
            timeline.at(run.now_s + float(run.random.uniform(60.0, 3600.0)), lambda: self._relapse(run, timeline, node))

    def _relapse(self, run: TrainingRun, timeline: EventQueue, node: int) -> None:
        key = NodeKey(f"n{node}", f"n{node}")
        shown = FaultEvidence("", "", Syndrome.NONE, Part.NODE, (key,), (), run.now_s, run.now_s, 0.95, Origin.NODE)
        decision = decide(self._situation(run), self.incidents, [shown], self.policy)
        self.incidents = decision.incidents
        self._decide(run, timeline)

    def _on_job(self, run: TrainingRun, timeline: EventQueue, intent: JobIntent) -> None:
        if intent.incarnation != str(self.number) or intent.do is JobDo.TOLERATE:
            return
        if intent.do is JobDo.MOVE_AT_CHECKPOINT:
            if self.moving != self.number:
                self.moving = self.number
                due_s = max(run.saved_at_s + run.setup.interval_s + run.setup.save_s, run.now_s)
                timeline.at(due_s + SAVED_S + 0.001, lambda: self._decide(run, timeline))
            return
        if intent.do is JobDo.RESTART_IN_PLACE:
            self._restart(run, timeline, list(run.seats), run.setup.in_place_s, "restarted in place")
            return
        is_moved = self.moving == self.number and run.stopped is None
        self._elsewhere(run, timeline, intent, "moved at a checkpoint" if is_moved else "restarted elsewhere")

    def _elsewhere(self, run: TrainingRun, timeline: EventQueue, intent: JobIntent, what: str) -> None:
        avoid = {int(key.name[1:]) for key in intent.avoid}
        kept = [node for node in run.seats if node not in avoid and self.nodes[f"n{node}"].taint is None]
        seats = (kept + [node for node in self._spares(run) if node not in avoid])[: run.setup.nodes]
        if len(seats) >= (run.setup.least or run.setup.nodes):
            for_s = run.setup.in_place_s if set(seats) <= set(kept) else run.setup.restart_s
            self._restart(run, timeline, seats, for_s, what)

    def _restart(self, run: TrainingRun, timeline: EventQueue, seats: list[int], for_s: float, what: str) -> None:
        self._count(what)
        self.restarted_s.append(run.now_s)
        self._next_run(run, for_s)
        restart(run, timeline, self, seats, for_s)
        self._new_pods(run)
        timeline.at(run.now_s + 1.0, lambda: self._decide(run, timeline))

    def _next_run(self, run: TrainingRun, for_s: float) -> None:
        self.number += 1
        self.started_s, self.last_evidence = run.now_s + for_s, None

    def _call_a_person(self, run: TrainingRun, timeline: EventQueue) -> None:
        stop = run.stopped
        if stop is None or self.person_called_for is stop:
            return
        self.person_called_for = stop
        self._count("people called")
        timeline.at(run.now_s + run.setup.person_s, lambda: self._by_hand(run, timeline, stop))

    def _by_hand(self, run: TrainingRun, timeline: EventQueue, stop: NodeFault) -> None:
        restarts = run.restarts
        if run.stopped is stop:
            by_hand(run, timeline, self, stop)
        if run.restarts > restarts:
            self._count("restarted by hand")
            self._next_run(run, run.setup.restart_s)
            self._new_pods(run)

    def _count(self, what: str) -> None:
        self.decided[what] = self.decided.get(what, 0) + 1
