"""Brain that plans in this process, and background deciders, whose proposals are adopted with the next plan.

On Ray their slots are actors, and no plan waits for them. While Ray is away, or a slot has been silent for a few plans,
its decider runs in this process, after the plan and where the deadline leaves time: less far, from the same memory.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import structlog

from cluster.clock import Clock
from cluster.frame import FrameError
from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from controller.brain.frames import SlotOutcome, proposal_from_frame
from controller.deciders.decider import BackgroundDecider, Proposal, Proposer
from controller.deciders.decisions import Decisions
from controller.deciders.memory import Warmth
from controller.deciders.pipeline import SECTIONS, Adopt, PlanRequest, Sections, planned, whole_plan
from placement.budget import stopped

log = structlog.get_logger(__name__)

HERE_S = 0.2
"""Seconds for all background deciders together in this process: a tenth of the shortest usual deadline."""
OUT_OF_TIME = Reason("BackgroundOutOfTime", "no time was left for the background deciders")
PATIENCE = 3
"""Plans without a result of a slot after which its decider runs in this process. Chosen: a lost actor is back within
two."""


@dataclass(slots=True)
class SlotCounts:
    """Outcomes of slots since the start, by slot and label; for the metrics."""

    thoughts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Results by slot and place of running: `ray`, `local`."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Runs without a result, by slot and reason."""
    actions: Counter[str] = field(default_factory=Counter)
    """Actions of proposals that plans adopted, by slot."""


class RemoteSlots(Protocol):
    """Slots of background deciders in another process."""

    @property
    def is_up(self) -> bool:
        """Whether their results are worth waiting for."""
        ...

    def outcomes(self) -> Iterable[SlotOutcome]:
        """Outcomes since the last call."""
        ...

    def remember(self, slot: str, memory: bytes) -> None:
        """Sets the memory that a run in this process left for the next one there."""
        ...


@dataclass(slots=True)
class Background:
    """Background deciders of a brain: adopts their proposals from elsewhere, or runs them in this process instead."""

    proposers: Sequence[Proposer]
    clock: Clock
    remote: RemoteSlots | None = None
    """Slots elsewhere; None: all deciders run in this process."""
    counts: SlotCounts = field(default_factory=SlotCounts)
    memories: dict[str, bytes] = field(default_factory=dict)
    _silent: Counter[str] = field(default_factory=Counter)
    """Plans since the last result, by slot."""

    def beside(self, over_at_s: float) -> Adopt:
        """The function by which the plan with this deadline adopts proposals."""
        came: dict[str, SlotOutcome] | None = None
        by_name = {proposer.name: proposer for proposer in self.proposers}

        def adopt(decider: BackgroundDecider, snapshot: Snapshot, plan: Plan) -> Plan:
            nonlocal came
            proposer = by_name.get(decider.name)
            if proposer is None:
                return Plan()
            if came is None:  # as late as possible: results that arrive during planning still count
                came = {outcome.slot: outcome for outcome in self.remote.outcomes()} if self.remote else {}
            after = snapshot.after(plan.actions)
            # Pods that the plan starts or stops are not movable.
            where = dict(zip(snapshot.pods.names, snapshot.pods.node.tolist(), strict=True))
            now = zip(after.pods.names, after.pods.node.tolist(), strict=True)
            stays = np.array([where.get(name) == node for name, node in now], dtype=bool)
            after = replace(after, pods=replace(after.pods, movable=after.pods.movable & stays))
            proposal = self._received(came.get(proposer.name)) or self._proposed_here(proposer, after, over_at_s)
            if proposal is None:
                return Plan()
            if not proposal.plan.cut_short:
                self._silent[proposer.name] = 0
            self.memories[proposer.name] = proposal.memory
            try:
                adopted = proposer.adopt(after, proposal.plan)
            except Exception as error:
                log.exception("a background proposal could not be adopted", slot=proposer.name)
                self._failed(SlotOutcome(proposer.name, reason="error", words=str(error)))
                return Plan()
            self.counts.actions[proposer.name] += len(adopted.actions)
            return adopted

        return adopt

    def _received(self, outcome: SlotOutcome | None) -> Proposal | None:
        """Result of a run elsewhere, where there is a readable one."""
        if outcome is None:
            return None
        if outcome.reason:
            self._failed(outcome)
            return None
        try:
            proposal = proposal_from_frame(outcome.frame)
        except FrameError as error:
            self._failed(replace(outcome, reason="garbled", words=str(error)))
            return None
        self.counts.thoughts[outcome.slot, "ray"] += 1
        return proposal

    def _proposed_here(self, proposer: Proposer, snapshot: Snapshot, over_at_s: float) -> Proposal | None:
        """Result of a run in this process, where the slot is away or silent and there is time."""
        self._silent[proposer.name] += 1
        if self.remote and self.remote.is_up and self._silent[proposer.name] < PATIENCE:
            return None
        memory, within_s = self.memories.get(proposer.name, b""), HERE_S / len(self.proposers)
        if over_at_s - self.clock() < within_s:
            return Proposal(Plan(cut_short=(OUT_OF_TIME,)), memory)
        try:
            proposal = proposer.propose(snapshot, memory, within_s)
        except Exception as error:
            log.exception("a background decider failed", slot=proposer.name)
            self._failed(SlotOutcome(proposer.name, reason="error", words=str(error)))
            return None
        self.counts.thoughts[proposer.name, "local"] += 1
        if self.remote:
            self.remote.remember(proposer.name, proposal.memory)
        return proposal

    def _failed(self, outcome: SlotOutcome) -> None:
        self.counts.failures[outcome.slot, outcome.reason] += 1
        log.warning("a background decider gave no result", slot=outcome.slot, reason=outcome.reason, why=outcome.words)


def no_background() -> Background:
    """Background without deciders."""
    return Background((), stopped)


@dataclass(frozen=True, slots=True)
class InlineBrain:
    """Brain that calls the deciders in this process."""

    decisions: Decisions
    clock: Clock
    warmth: Warmth = field(default_factory=Warmth)
    """Planner memory, kept from one plan to the next."""
    background: Background = field(default_factory=no_background)
    sections: Sections = SECTIONS

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        asked = PlanRequest(self.decisions, deadline_s, self.clock, self.warmth)
        adopt = self.background.beside(asked.over_at_s)
        return whole_plan(
            snapshot, self.decisions, lambda seen: planned(seen, asked, self.sections), adopt, self.sections
        )
