"""Brain on Ray, the remote planner process: a plan by the deadline, from Ray or, while Ray is away, from this process.

A Ray outage costs no function: without a brain, this process makes the same plan itself; where a brain let the
deadline pass, a heuristic plans at once. This file does not import Ray; a separate process does
(controller/brain/on_ray/process.py).
"""

import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import structlog

from cluster.actions import Scale
from cluster.clock import Clock
from cluster.frame import FrameError
from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from controller.brain.frames import plan_from_frame, snapshot_frame
from controller.brain.inline import Background, SlotCounts
from controller.brain.link import BrainState, Link
from controller.deciders.decisions import Decisions
from controller.deciders.memory import Warmth
from controller.deciders.pipeline import SECTIONS, PlanRequest, Sections, planned, proposers_of, whole_plan
from controller.guard import Limits, guard
from controller.metrics.registry import Meter
from controller.ports import PLANNED_LOCALLY

log = structlog.get_logger(__name__)

UNHURRIED_SHARE = 0.9
"""Fraction of the planning time that must be left for a local plan with the full amount of work. A brain that is away
takes none of it, so these plans are as deterministic as those of any other planner."""
LATE_POLICY = "bestfit"
"""Packing policy of plans past the deadline, for the pods that a batch leaves out: the quickest one that leaves little
unused (benchmarks/packing_speed.py)."""
LATE_S = 0.5
"""Time for a local plan past the deadline, in seconds, which also sets its amount of work. It then follows within a
second of the deadline, also on a machine that is busy with restarting Ray (benchmarks/brain.py)."""
OUT_OF_TIME = Reason("BrainOutOfTime", "the brain gave no plan by the deadline, so a quick heuristic made one")
LASTING = ("away", "starting", "distrusted")
"""Reasons for which Ray gives no plans for a while. A single late plan is only counted: a status would change twice for
it."""


@dataclass(slots=True)
class BrainCounts:
    """Outcomes of requests since the start, for the metrics."""

    plans: Counter[str] = field(default_factory=Counter)
    """Plans by planner: `ray`, `local`."""
    fallbacks: Counter[str] = field(default_factory=Counter)
    """Plans made locally, by reason."""
    handover_s: float = 0.0
    """Seconds to turn the last snapshot into a frame."""
    latency_s: float = 0.0
    """Seconds from the last snapshot to its plan, by either planner."""


@dataclass(slots=True)
class RayBrain:
    """Brain that requests plans from the brain process, and plans in this process when there is none."""

    link: Link
    decisions: Decisions
    clock: Clock
    sections: Sections = SECTIONS
    """Order of deciders in this process. Planners on Ray always use the product's order for their own section."""
    counts: BrainCounts = field(default_factory=BrainCounts)
    warmth: Warmth = field(default_factory=Warmth)
    """Memory of local plans, kept from one to the next."""
    late_warmth: Warmth = field(default_factory=Warmth)
    """The same of plans past the deadline, whose packing policy is another."""
    background: Background = field(init=False)
    epoch: int = field(default=1, init=False)
    """Epoch of the Lease under which this process writes."""

    def __post_init__(self) -> None:
        self.background = Background(proposers_of(self.decisions), self.clock, self.link)

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        over_at_s = self.clock() + deadline_s
        adopt = self.background.beside(over_at_s)
        return whole_plan(snapshot, self.decisions, lambda seen: self._planned(seen, over_at_s), adopt, self.sections)

    def _planned(self, snapshot: Snapshot, over_at_s: float) -> Plan:
        """The planners' section of the plan: from Ray, or else from this process."""
        began_s = self.clock()
        try:
            found = self._from_ray(snapshot, over_at_s - began_s, began_s)
            if isinstance(found, Plan):
                self.counts.plans["ray"] += 1
                return found
            return self._locally(snapshot, found, over_at_s - self.clock())
        finally:
            self.counts.latency_s = self.clock() - began_s

    @property
    def standing(self) -> BrainState:
        return self.link.standing

    def lead(self, *, leads: bool, epoch: int = 1) -> None:
        """Starts the brain of a replica that leads, in this epoch of the Lease; one that stands by keeps none."""
        self.epoch = epoch
        self.link.want(wanted=leads)

    def close(self) -> None:
        self.link.close()

    def _from_ray(self, snapshot: Snapshot, deadline_s: float, began_s: float) -> Plan | Reason:
        standing = self.link.standing
        if standing.state != "up":
            return Reason(standing.state, standing.why)
        frame = snapshot_frame(snapshot)
        self.counts.handover_s = self.clock() - began_s
        reply = self.link.ask(frame, self.epoch, deadline_s - self.counts.handover_s)
        if not reply.plan:
            return Reason(reply.reason, reply.words)
        found = usable(snapshot, reply.plan)
        if isinstance(found, Reason):
            self.link.reject(found.words)
        return found

    def _locally(self, snapshot: Snapshot, why: Reason, left_s: float) -> Plan:
        """The plan by this process. left_s: time until the deadline, not positive when it has passed."""
        self.counts.plans["local"] += 1
        self.counts.fallbacks[why.code] += 1
        log.info("planned locally", reason=why.code, why=why.words)
        if left_s >= UNHURRIED_SHARE * self.decisions.within_s:
            asked = PlanRequest(self.decisions, left_s, self.clock, self.warmth)
        else:
            asked = PlanRequest(late_decisions(self.decisions), LATE_S, self.clock, self.late_warmth)
        plan = planned(snapshot, asked)
        if why.code == "deadline":
            plan = replace(plan, cut_short=(*plan.cut_short, OUT_OF_TIME))
        if why.code not in LASTING:
            return plan
        # On each service, so that its status shows it. Constant words while this lasts: a status that named each
        # attempt would be written for each.
        note = Reason(PLANNED_LOCALLY, "planned by the controller itself while the brain is not available")
        return replace(plan, services=tuple(replace(each, notes=(*each.notes, note)) for each in plan.services))


NO_LIMITS = Limits(max_evictions_share=1.0, max_evictions_floor=sys.maxsize, max_stopped_share=1.0, max_age_s=math.inf)
"""Limits that refuse no step of a sound plan: those of the operator also cut sound ones."""
MOST_REFUSED = 0.5
"""Fraction of a plan's steps that the guard may refuse before the whole plan is distrusted. A sound plan has none; with
fewer, the guard takes out what is wrong."""


def usable(snapshot: Snapshot, frame: bytes) -> Plan | Reason:
    """The plan in a brain's frame without the steps that the guard refuses, or the reason why it cannot be used."""
    try:
        plan = plan_from_frame(frame)
    except FrameError as error:
        return Reason("garbled", str(error))
    scaled = [action.service for action in plan.actions if isinstance(action, Scale)]
    if len(set(scaled)) < len(scaled):
        return Reason("garbled", "the plan scales a service twice")
    checked = guard(snapshot, replace(plan, refused=()), NO_LIMITS)
    steps, refused = sum(1 for _ in plan.steps()), [each.reason for each in checked.refused]
    if len(refused) <= MOST_REFUSED * steps:
        return checked
    # A plan for objects of another snapshot is no plan for this one.
    code = "garbled" if all(why.code == "NotFound" for why in refused) else "infeasible"
    return Reason(code, f"the guard refuses {len(refused)} of its {steps} steps: {refused[0].words}")


def late_decisions(decisions: Decisions) -> Decisions:
    """Settings of plans past the deadline.

    Pending pods are planned as one batch, whatever the planner on Ray: 40,000 pods on 20,000 nodes take half a second
    of a core, in which no pod has its turn where they are placed one by one (benchmarks/plan.py).
    """
    batch = replace(decisions.batch, within_s=LATE_S)
    return replace(decisions, within_s=LATE_S, planner="columns", batch=batch, policy=LATE_POLICY, move_share=0.0)


Labels = tuple[str, ...]


@dataclass(slots=True)
class BrainMetrics:
    """Publisher of the brain's metrics. It remembers published counts, because counters rise only by the difference."""

    meter: Meter
    published: dict[str, Counter[Labels]] = field(default_factory=dict)

    def publish(self, brain: RayBrain, slots: SlotCounts) -> None:
        meter, counts, standing = self.meter, brain.counts, brain.standing
        self._rise("tonnage_brain_plans_total", counts.plans)
        self._rise("tonnage_brain_fallbacks_total", counts.fallbacks)
        self._rise("tonnage_brain_restarts_total", standing.losses)
        self._rise("tonnage_brain_late_answers_total", Counter({"": standing.late}))
        self._rise("tonnage_brain_slot_thoughts_total", slots.thoughts)
        self._rise("tonnage_brain_slot_failures_total", slots.failures)
        self._rise("tonnage_brain_slot_actions_total", slots.actions)
        for slot in {name for name, _ in (*slots.thoughts, *slots.failures)} | set(standing.slots_up):
            meter.set("tonnage_brain_slot_up", int(slot in standing.slots_up), slot)
        meter.set("tonnage_brain_up", int(standing.state == "up" and standing.trusted))
        meter.set("tonnage_brain_planners", standing.planners_up)
        meter.set("tonnage_brain_planner_restarts", standing.planner_restarts)
        meter.set("tonnage_brain_handover_seconds", counts.handover_s)

    def _rise(self, name: str, now: Mapping[str, int] | Mapping[tuple[str, str], int]) -> None:
        """Raises a counter to the counts `now`: by label, by labels, or by "" where there is none."""
        counted: Counter[Labels] = Counter()
        for label, count in now.items():
            counted[(label,) if isinstance(label, str) else label] = count
        for labels, count in (counted - self.published.get(name, Counter())).items():
            self.meter.count(name, *filter(None, labels), by=count)
        self.published[name] = counted
