"""Brain and guard as the settings configure them, for the operator, `tonnage plan`, the simulator and scenarios."""

import time
from pathlib import Path
from random import Random

from cluster.clock import Clock
from controller.brain.inline import Background, InlineBrain
from controller.brain.launcher import BrainPeer, ChildBrain, RemoteBrain
from controller.brain.link import Link
from controller.brain.on_ray.ray_start import RayStart
from controller.brain.remote import RayBrain
from controller.deciders.decisions import Decisions
from controller.deciders.edits import MOST_STARTS
from controller.deciders.pipeline import SECTIONS, Sections, proposers_of
from controller.guard import Limits
from controller.settings import BrainSettings, OperatorSettings
from placement.batch.ladder import BatchSettings
from placement.mix.planner import MixSettings


def decisions_from(settings: OperatorSettings, *, awaits_pods: bool = True, explain: bool = False) -> Decisions:
    """Settings of all deciders. This is the only place that assembles them.

    awaits_pods: whether services' pods are created only after the service was scaled, as on a cluster; a plan then also
    starts only so many pods that the next one is not late. explain: whether plans report what another GPU or SLO would
    save; it changes no action.
    """
    return Decisions(
        within_s=settings.plan_deadline_s,
        policy=settings.policy,
        planner=settings.planner,
        batch=BatchSettings(within_s=settings.plan_deadline_s),
        mix=MixSettings(change_price_per_hour=settings.change_price_per_hour, explain=explain),
        preempt=settings.preempt,
        autoscale=settings.autoscaler.enabled,
        hold_s=settings.hold_s,
        gang_deadline_s=settings.gang_deadline_s,
        release_deadline_s=settings.release_deadline_s,
        isolates=True,
        fit_slots=fit_slots_of(settings),
        awaits_pods=awaits_pods,
        most_starts=MOST_STARTS if awaits_pods else None,
        shares=settings.brain.shares,
    )


def fit_slots_of(settings: OperatorSettings) -> int:
    """Background slots that fit forecasts; none where plans are made in this process, which would wait for them."""
    return settings.autoscaler.fit_slots if settings.autoscaler.enabled and settings.brain.mode != "inline" else 0


def limits_from(settings: OperatorSettings) -> Limits:
    """Limits of the guard on one plan."""
    return Limits(**settings.limits.model_dump())


def brain_from(
    settings: OperatorSettings,
    decisions: Decisions | None = None,
    *,
    clock: Clock = time.monotonic,
    sections: Sections = SECTIONS,
) -> InlineBrain | RayBrain:
    """The brain in the configured mode. One on Ray starts when its replica leads (`RayBrain.lead`).

    decisions: those of the settings by default. sections: the order of deciders.
    """
    decisions = decisions_from(settings) if decisions is None else decisions
    if settings.brain.mode == "inline":
        return inline_brain(decisions, clock, sections)
    link = Link(_peer(settings.brain), decisions, Random())  # noqa: S311 - spreads restarts, hides nothing
    return RayBrain(link, decisions, clock, sections)


def inline_brain(decisions: Decisions, clock: Clock = time.monotonic, sections: Sections = SECTIONS) -> InlineBrain:
    """The brain in this process, with its background deciders."""
    return InlineBrain(decisions, clock, background=Background(proposers_of(decisions), clock), sections=sections)


def _peer(brain: BrainSettings) -> BrainPeer:
    if brain.mode == "embedded":
        return ChildBrain(RayStart(folder="", planners=brain.planners))
    return RemoteBrain(brain.address, Path(brain.token_file))
