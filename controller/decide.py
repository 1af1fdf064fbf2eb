"""The order of the deciders: each sees the cluster as the ones before it want it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from placement.mix_hold import held
from placement.mix_plan import MixSettings, plan_mix
from placement.order import content_rank
from placement.pack import pack
from placement.packer import Packer
from placement.policies import policy_named
from placement.policy import Knowledge

Clock = Callable[[], float]
"""Monotonic, seconds."""

MIX_SHARE = 0.5
"""Share of the deadline that the mix may take. Chosen: it needs a tenth of it in practice, packing what is pending."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """How is decided, as the operator set it."""

    policy: str = "tonnage"
    """The packing policy, one of `placement.policies.POLICIES`."""
    mix: MixSettings = field(default_factory=MixSettings)
    preempt: bool = True
    """Whether pods of lower priority are stopped for those of higher priority."""
    hold_s: float = 0.0
    """A service that can still serve its demand is not changed again so soon after a change; 0: it may be at once."""
    seed: int = 0
    """Of all chance in deciding: the same snapshot and seed make the same plan."""


def decide(snapshot: Snapshot, decisions: Decisions, *, deadline_s: float, clock: Clock) -> Plan:
    """What should happen now: how many instances of each service, then a node for everything that is pending.

    Raises ConfigError for an unknown policy.
    """
    over_at_s = clock() + deadline_s
    mix = plan_mix(snapshot, deadline_s=MIX_SHARE * deadline_s, clock=clock, settings=decisions.mix)
    mix = held(snapshot, mix, hold_s=decisions.hold_s, deadline_s=MIX_SHARE * deadline_s / 2, clock=clock)
    scaled = snapshot.after(mix.actions)
    packer = packer_for(scaled, decisions)
    packed = pack(scaled, packer, preempt=decisions.preempt, is_over=lambda: clock() >= over_at_s)
    return mix.joined(packed)


def packer_for(snapshot: Snapshot, decisions: Decisions) -> Packer:
    """The packing engine for a snapshot; what is there and waits is what the policy expects to see more of."""
    pods = snapshot.pods
    expected = tuple(pods.shapes[index] for index in pods.shape)
    policy = policy_named(decisions.policy, Knowledge(fleet=snapshot, expected=expected, seed=decisions.seed))
    return Packer.of(snapshot, policy, rank=content_rank(snapshot))


def plan_for(snapshot: Snapshot, *, deadline_s: float, policy: str, clock: Clock) -> Plan:
    """A plan by one packing policy and otherwise default decisions."""
    return decide(snapshot, replace(Decisions(), policy=policy), deadline_s=deadline_s, clock=clock)
