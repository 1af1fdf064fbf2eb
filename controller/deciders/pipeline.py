"""Order of deciders, the same in the operator, on Ray, in `tonnage plan` and the simulator, and how a plan runs them.

A new decider is a folder with a pure function, a file here that calls it, and a line in ORDER.
"""

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Literal

from cluster.changes import with_expected
from cluster.clock import Clock
from cluster.errors import ConfigError
from cluster.plans import Finding, Plan, Reason
from cluster.snapshot import Snapshot
from controller.deciders import autoscaling, closing, consolidation, edits, load_fits, packing, remediation
from controller.deciders.decider import BackgroundDecider, Decider, Entry, PlanEdit, Proposer, Turn
from controller.deciders.decisions import Decisions
from controller.deciders.memory import ShareMemory, Warmth
from placement.budget import Budget
from placement.mix.optimizer import work_of as mix_work_of
from placement.packing.planner import packing_work_of
from placement.partition import share_like, shares_of

ORDER: tuple[Entry, ...] = (
    # First: those after it place nothing on a node that it takes out, and place again what it stops.
    Decider("remediation", remediation.decide, "cluster", needs="health"),
    Decider("autoscaling", autoscaling.decide, "cluster", needs="scalers"),
    Decider("replicas", autoscaling.decide_mix, "cluster", mix_work_of, autoscaling.TIME_SHARE, needs="services"),
    Decider("packing", packing.decide, "share", packing_work_of, assured_share=packing.ASSURED_SHARE),
    Decider("moves", packing.decide_moves, "share"),
    BackgroundDecider("polish", consolidation.polish_of),
    *(
        BackgroundDecider(f"load_fits_{slot}", partial(load_fits.load_fits_of, slot))
        for slot in range(load_fits.MOST_SLOTS)
    ),
    Decider("gang_rollback", closing.roll_back_gangs, "cluster", needs="gangs"),
    Decider("gate_timeout", closing.end_releases, "cluster", needs="released_at_s"),
    Decider("claim_release", closing.release_claims, "cluster", needs="idle_claims"),
    Decider("unallocated_claims", closing.report_left_out, "cluster", needs="left_out"),
    Decider("held_back", closing.report_held_back, "cluster", needs="held_back"),
    PlanEdit("refusals", edits.tell_refusals),
    PlanEdit("rank_order", edits.order_ranks),
    # Last: they take out of the plan what stands on instances that do not exist yet, and what the next plan starts.
    PlanEdit("awaiting_pods", edits.await_pods),
    PlanEdit("start_limit", edits.limit_starts),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Consecutive deciders of one scope: one planner runs them on the cluster, or several run them on its shares."""

    scope: Literal["cluster", "share"]
    deciders: tuple[Decider, ...]


@dataclass(frozen=True, slots=True)
class Sections:
    """Order of deciders, divided by the process that runs them.

    Planners, which may be on Ray, run the long ones. The rest is quick, or needs data that only the loop's process has;
    it also runs while Ray is away.
    """

    opening: tuple[Entry, ...]
    """Entries before the planners' section: background deciders, whose proposals are adopted first."""
    stages: tuple[Stage, ...]
    """Planners' section: up to the last decider that runs share by share."""
    closing: tuple[Entry, ...]


def sections_of(order: tuple[Entry, ...]) -> Sections:
    """The order as sections. Raises ValueError where planners would have to wait for the loop's process in between."""
    first = next(n for n, entry in enumerate(order) if entry.scope != "background")
    end = 1 + max((n for n, entry in enumerate(order) if entry.scope == "share"), default=first - 1)
    planners = [entry for entry in order[first:end] if isinstance(entry, Decider)]
    if len(planners) < end - first:
        raise ValueError(
            "a background decider or an edit is between the planners' deciders; move it before or after them"
        )
    stages = tuple(Stage(scope, tuple(each)) for scope, each in groupby(planners, attrgetter("scope")))
    return Sections(order[:first], stages, order[end:])


SECTIONS = sections_of(ORDER)


def proposers_of(decisions: Decisions) -> tuple[Proposer, ...]:
    """Background deciders that the decisions enable, in order; on Ray, each costs an actor, 60 MB."""
    entries = (entry for entry in ORDER if isinstance(entry, BackgroundDecider))
    return tuple(proposer for entry in entries if (proposer := entry.proposer(decisions)) is not None)


DECIDER_FAILED = "DeciderFailed"
"""Code of the finding about a decider that raised an error."""
Adopt = Callable[[BackgroundDecider, Snapshot, Plan], Plan]
"""Function that returns the part of a background decider's proposal that joins the plan, for the observed cluster and
the plan so far."""


def nothing_found(decider: BackgroundDecider, snapshot: Snapshot, plan: Plan) -> Plan:  # noqa: ARG001 - an Adopt
    """An `Adopt` that adopts nothing, for callers without background deciders."""
    return Plan()


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Request for one plan: settings, deadline and planner memory."""

    decisions: Decisions
    deadline_s: float
    """Seconds after which time ends deciding, as the last resort; counted from the creation of this object."""
    clock: Clock
    warmth: Warmth = field(default_factory=Warmth)
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "began_s", self.clock())

    @property
    def over_at_s(self) -> float:
        """Instant of the deadline, on `clock`."""
        return self.began_s + self.deadline_s


def decide(
    snapshot: Snapshot, decisions: Decisions, *, deadline_s: float, clock: Clock, warmth: Warmth | None = None
) -> Plan:
    """The plan for a snapshot by all deciders except the background ones.

    The decisions set the amount of work. deadline_s: when time ends it, as the last resort; the plan then reports that.
    warmth: planner memory, kept from one call to the next; None: every call starts cold. Raises ConfigError for an
    unknown policy.
    """
    asked = PlanRequest(decisions, deadline_s, clock, Warmth() if warmth is None else warmth)
    return whole_plan(snapshot, decisions, lambda seen: planned(seen, asked))


def whole_plan(
    snapshot: Snapshot,
    decisions: Decisions,
    planners: Callable[[Snapshot], Plan],
    adopt: Adopt = nothing_found,
    sections: Sections = SECTIONS,
) -> Plan:
    """The plan by the whole order. planners: makes the planners' section of it, in this process or elsewhere."""
    plan = _walked(sections.opening, snapshot, Plan(), decisions, adopt)
    plan = plan.joined(planners(_after(snapshot, plan)))
    return _walked(sections.closing, snapshot, plan, decisions, adopt)


def _walked(entries: Sequence[Entry], observed: Snapshot, plan: Plan, decisions: Decisions, adopt: Adopt) -> Plan:
    """The plan with what these entries add to it. They are quick, so no budget limits them."""
    now: Snapshot | None = None  # the snapshot after the plan so far; None: no decider has needed it yet
    for entry in entries:
        match entry:
            case PlanEdit():
                plan, now = entry.edit(observed, plan, decisions), None
                continue
            case BackgroundDecider():
                more = _isolated(entry.name, decisions, partial(adopt, entry, observed, plan))
            case Decider():
                if entry.needs and not getattr(observed, entry.needs):
                    continue
                work = entry.work_of(decisions.within_s) if entry.work_of else math.inf
                turn = Turn(decisions, Budget(work), ShareMemory(), observed, observed)
                now = _after(observed, plan) if now is None else now
                more = _isolated(entry.name, decisions, partial(entry.decide, now, turn))
        plan, now = plan.joined(more), None if now is None else _after(now, more)
    return plan


def _after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot as a plan leaves it: after its actions, with the demands that it expects."""
    seen = with_expected(snapshot, plan.expected) if plan.expected else snapshot
    return seen.after(plan.actions) if plan.phases else seen


def planned(snapshot: Snapshot, asked: PlanRequest, sections: Sections = SECTIONS) -> Plan:
    """The planners' section of the plan, made by one planner."""
    plan = Plan()
    for stage in sections.stages:
        for part in stage_plans(stage, snapshot, plan, asked):
            plan = plan.joined(part)
    return plan


def stage_plans(
    stage: Stage, snapshot: Snapshot, so_far: Plan, asked: PlanRequest, *, part: int = 0, parts: int = 1
) -> list[Plan]:
    """The plans that a stage adds to the plan so far: one for the whole cluster, or one for each share.

    part, parts: number of this planner, and number of planners; it decides on shares `part`, `part + parts`, ... Shares
    depend neither on which planner decides on them nor on each other, so planners decide on them in parallel.
    """
    seen = _after(snapshot, so_far)
    if stage.scope == "cluster":
        return [_stage_plan(stage, seen, asked, observed=snapshot, number=0, portion=1.0)]
    if not len(seen.nodes):
        return []  # The plan only decides what to rent: there is no fleet to pack, and no pod lacks a place in it.
    shares = shares_of(seen, asked.decisions.shares) if asked.decisions.shares > 1 else (seen,)
    waiting = [len(share.pods.pending) for share in shares]
    plans = []
    for number in range(part, len(shares), parts):
        share = shares[number]
        # The same share of the observed cluster: without the pods that this plan adds, with those that it removes.
        observed = snapshot if len(shares) == 1 else share_like(snapshot, share)
        portion = max(1, waiting[number]) / max(1, sum(waiting))
        plans.append(_stage_plan(stage, share, asked, observed=observed, number=number, portion=portion))
    asked.warmth.rest()
    return plans


def _stage_plan(
    stage: Stage, seen: Snapshot, asked: PlanRequest, *, observed: Snapshot, number: int, portion: float
) -> Plan:
    """The plan by the deciders of a stage, one after another. number: of the share, for its memory. portion: fraction
    of a decider's work on the whole cluster."""
    plan, now = Plan(), seen
    for decider in stage.deciders:
        if decider.needs and not getattr(now, decider.needs):
            continue
        work = portion * decider.work_of(asked.decisions.within_s) if decider.work_of else math.inf
        time_share = decider.time_share if len(seen.nodes) else 1.0  # without a fleet no other decider needs the rest
        over_at_s = asked.began_s + time_share * asked.deadline_s
        budget = Budget(work, asked.clock, over_at_s, assured=decider.assured_share * work)
        turn = Turn(asked.decisions, budget, asked.warmth.memory(number), seen, observed)
        more = _isolated(decider.name, asked.decisions, partial(decider.decide, now, turn))
        plan, now = plan.joined(more), _after(now, more)
    return plan


def _isolated(name: str, decisions: Decisions, step: Callable[[], Plan]) -> Plan:
    """What a decider adds to the plan; of one that raises, a finding.

    The deciders after it see the cluster without its actions, as when it has nothing to do. An edit is not isolated:
    a plan without it could do what the edit takes out.
    """
    try:
        return step()
    except ConfigError:
        raise
    except Exception as error:
        if not decisions.isolates:
            raise
        # Without the error's text, which may hold what a tenant wrote.
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{'/'.join(last.filename.split('/')[-3:])}:{last.lineno}, in {last.name}"
        words = f"raised {type(error).__name__} at {place}; the plan goes on without it"
        return Plan(findings=(Finding(f"Decider/{name}", Reason(DECIDER_FAILED, words)),))
