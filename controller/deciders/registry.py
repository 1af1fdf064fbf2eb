"""Order of deciders, the same everywhere: in the operator, on Ray, in `tonnage plan` and in the simulator.

A new decider is a folder with a pure function, a file here that calls it, and a line in ORDER.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from controller.deciders import (
    autoscaling,
    awaiting_pods,
    claim_release,
    consolidation,
    gang_rollback,
    gate_timeout,
    held_back,
    load_fits,
    moves,
    packing,
    rank_order,
    remediation,
    replicas,
    start_limit,
    unallocated_claims,
)
from controller.deciders.background import Proposer
from controller.deciders.decider import BackgroundDecider, Decider, Entry, PlanEdit
from controller.deciders.decisions import Decisions
from placement.mix.optimizer import work_of as mix_work_of
from placement.packing.planner import packing_work_of

ORDER: tuple[Entry, ...] = (
    # First: those after it place nothing on a node that it takes out, and place again what it stops.
    Decider("remediation", remediation.decide, "cluster"),
    Decider("autoscaling", autoscaling.decide, "cluster"),
    Decider("replicas", replicas.decide, "cluster", mix_work_of, replicas.TIME_SHARE),
    Decider("packing", packing.decide, "share", packing_work_of, assured_share=packing.ASSURED_SHARE),
    Decider("moves", moves.decide, "share"),
    BackgroundDecider("polish", consolidation.polish_of),
    *(BackgroundDecider(f"load_fits_{slot}", load_fits.load_fits_of(slot)) for slot in range(load_fits.MOST_SLOTS)),
    Decider("gang_rollback", gang_rollback.decide, "cluster"),
    Decider("gate_timeout", gate_timeout.decide, "cluster"),
    Decider("claim_release", claim_release.decide, "cluster"),
    Decider("unallocated_claims", unallocated_claims.decide, "cluster"),
    Decider("held_back", held_back.decide, "cluster"),
    PlanEdit("rank_order", rank_order.edit),
    # Last: they take out of the plan what stands on instances that do not exist yet, and what the next plan starts.
    PlanEdit("awaiting_pods", awaiting_pods.edit),
    PlanEdit("start_limit", start_limit.edit),
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
    stages = tuple(Stage(scope, tuple(each)) for scope, each in groupby(planners, lambda decider: decider.scope))
    return Sections(order[:first], stages, order[end:])


SECTIONS = sections_of(ORDER)


def proposers_of(decisions: Decisions) -> tuple[Proposer, ...]:
    """Background deciders that the decisions enable, in order; on Ray, each costs an actor, 60 MB."""
    entries = (entry for entry in ORDER if isinstance(entry, BackgroundDecider))
    return tuple(proposer for entry in entries if (proposer := entry.proposer(decisions)) is not None)
