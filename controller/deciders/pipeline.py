"""Order of deciders, the same in the operator, in `tonnage plan` and the simulator, and how a plan asks them.

A new decider is a folder with a pure function, a file here that calls it, and a line in ORDER.
"""

import math
import traceback
from collections.abc import Callable
from functools import partial

from cluster.changes import with_expected
from cluster.clock import Clock
from cluster.errors import ConfigError
from cluster.plans import Finding, Plan, Reason
from cluster.snapshot import Snapshot
from controller.deciders import autoscaling, closing, edits, packing, remediation
from controller.deciders.decider import Decider, Entry, PlanEdit, Turn
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PlannerMemory
from placement.budget import Budget
from placement.mix.optimizer import work_of as mix_work_of
from placement.packing.planner import packing_work_of

ORDER: tuple[Entry, ...] = (
    # First: those after it place nothing on a node that it takes out, and place again what it stops.
    Decider("remediation", remediation.decide, needs="health"),
    Decider("autoscaling", autoscaling.decide, needs="scalers"),
    Decider("replicas", autoscaling.decide_mix, mix_work_of, autoscaling.TIME_SHARE, needs="services"),
    Decider("packing", packing.decide, packing_work_of, assured_share=packing.ASSURED_SHARE, needs="nodes"),
    Decider("gang_rollback", closing.roll_back_gangs, needs="gangs"),
    Decider("gate_timeout", closing.end_releases, needs="released_at_s"),
    Decider("claim_release", closing.release_claims, needs="idle_claims"),
    Decider("unallocated_claims", closing.report_left_out, needs="left_out"),
    Decider("held_back", closing.report_held_back, needs="held_back"),
    PlanEdit("refusals", edits.tell_refusals),
    PlanEdit("rank_order", edits.order_ranks),
    # Last: they take out of the plan what stands on instances that do not exist yet, and what the next plan starts.
    PlanEdit("awaiting_pods", edits.await_pods),
    PlanEdit("start_limit", edits.limit_starts),
)
DECIDER_FAILED = "DeciderFailed"
"""Code of the finding about a decider that raised an error."""


def decide(
    snapshot: Snapshot,
    decisions: Decisions,
    *,
    deadline_s: float,
    clock: Clock,
    memory: PlannerMemory | None = None,
    order: tuple[Entry, ...] = ORDER,
) -> Plan:
    """The plan for a snapshot by all deciders, one after another.

    The decisions set the amount of work. deadline_s: when time ends it, as the last resort; the plan then reports that.
    memory: kept from one call to the next; None: every call starts cold. Raises ConfigError for an unknown policy.
    """
    began_s, memory = clock(), PlannerMemory() if memory is None else memory
    plan = Plan()
    now: Snapshot | None = snapshot  # the snapshot after the plan so far; None: no decider has needed it since an edit
    for entry in order:
        if isinstance(entry, PlanEdit):
            plan, now = entry.edit(snapshot, plan, decisions), None
            continue
        if entry.needs and not getattr(snapshot, entry.needs):
            continue
        work = entry.work_of(decisions.within_s) if entry.work_of else math.inf
        time_share = entry.time_share if len(snapshot.nodes) else 1.0  # without a fleet no other decider needs the rest
        budget = Budget(work, clock, began_s + time_share * deadline_s, assured=entry.assured_share * work)
        turn, now = Turn(decisions, budget, memory, snapshot), _after(snapshot, plan) if now is None else now
        more = _isolated(entry.name, decisions, partial(entry.decide, now, turn))
        plan, now = plan.joined(more), _after(now, more)
    memory.rest()
    return plan


def _after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot as a plan leaves it: after its actions, with the demands that it expects."""
    seen = with_expected(snapshot, plan.expected) if plan.expected else snapshot
    return seen.after(plan.actions) if plan.phases else seen


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
