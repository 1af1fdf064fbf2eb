"""Which brain decides in the operator, with what wraps it: here or on Ray, as the settings ask."""

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from controller.brain.inline import InlineBrain
from controller.brain.launcher import ChildBrain, Peer, RemoteBrain, secret_from
from controller.brain.metrics import BrainTeller
from controller.brain.on_ray.ray_start import RayStart
from controller.brain.remote import RayBrain, aside_of
from controller.brain.supervisor import Link
from controller.brain.with_background import ThinksAside
from controller.deciders.awaiting_pods import AwaitsPods
from controller.deciders.decisions import Decisions
from controller.deciders.gang_rollback import TakesGangsBack
from controller.deciders.gate_timeout import OnItsWay, TakesReleasesBack
from controller.kube.leader_election import Leadership
from controller.metrics.registry import Meter
from controller.ports import Brain
from controller.settings import OperatorSettings
from placement.batch.ladder import BatchSettings
from placement.mix.planner import MixSettings


@dataclass(frozen=True, slots=True)
class OnRay:
    """A brain on Ray and who tells of it."""

    brain: RayBrain
    aside: ThinksAside
    """The same brain with its slots."""
    teller: BrainTeller


def brain_of(settings: OperatorSettings, ray: OnRay | None, is_on_its_way: OnItsWay) -> Brain:
    inner: Brain = ray.aside if ray else InlineBrain(decisions_of(settings), time.monotonic)
    gangs = TakesGangsBack(inner, settings.gang_deadline_s, time.monotonic)
    return AwaitsPods(TakesReleasesBack(gangs, is_on_its_way, settings.release_deadline_s, time.monotonic))


def decisions_of(settings: OperatorSettings) -> Decisions:
    return Decisions(
        within_s=settings.plan_deadline_s,
        policy=settings.policy,
        planner=settings.planner,
        batch=BatchSettings(within_s=settings.plan_deadline_s),
        mix=MixSettings(change_price_per_hour=settings.change_price_per_hour, explain=False),
        preempt=settings.preempt,
        hold_s=settings.hold_s,
        shares=settings.brain.shares,
    )


def on_ray(settings: OperatorSettings, meter: Meter, leadership: Leadership) -> OnRay | None:
    """The brain on Ray that the settings ask for. It starts when this replica leads."""
    brain = settings.brain
    if brain.mode == "inline":
        return None
    peer: Peer
    if brain.mode == "embedded":
        peer = ChildBrain(RayStart(folder="", planners=brain.planners))
    else:
        peer = RemoteBrain(brain.address, lambda: secret_from(Path(brain.token_file)))
    decisions = decisions_of(settings)
    link = Link(peer, decisions, Random().random)  # noqa: S311 - spreads restarts, hides nothing
    ray = RayBrain(link, decisions, time.monotonic, lambda: leadership.epoch)
    return OnRay(ray, aside_of(ray, decisions), BrainTeller(meter))
