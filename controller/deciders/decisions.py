"""Settings of all deciders, as one value."""

from dataclasses import dataclass, field

from placement.mix.planner import MixSettings
from placement.move_price import MovePrice


@dataclass(frozen=True, slots=True)
class Decisions:
    """Settings of all deciders, as the operator of the cluster set them."""

    within_s: float = 2.0
    """Longest time for deciding on a slow core, in seconds. It sets the amount of work: solver iterations, places
    examined. It is not the time that remains in a cycle: then the same snapshot would give other plans on a busy
    machine."""
    policy: str = "tonnage"
    """Packing policy, one of `placement.policies.POLICIES`."""
    returns_idle_nodes: bool = False
    """Whether nodes that run nothing are given back: a pod then starts one only where no node in use takes it."""
    mix: MixSettings = field(default_factory=MixSettings)
    preempt: bool = True
    """Whether pods of lower priority are evicted for those of higher priority."""
    autoscale: bool = True
    """Whether ScalingPolicies are evaluated."""
    make_room: bool = True
    """Whether pods that may be moved are moved for pods and gangs that fit nowhere."""
    move_price: MovePrice = field(default_factory=MovePrice)
    """Saving that a move must reach."""
    gang_deadline_s: float = 300.0
    """Seconds after which a gang that runs with too few members, and cannot be completed, is stopped whole."""
    release_deadline_s: float = 60.0
    """Seconds after which a pod that was released towards a node, but is not bound there, is evicted if it is
    movable."""
    awaits_pods: bool = False
    """Whether pods of a service are created only after it was scaled, as a Deployment's are. Then the next plan places
    them, under their real names."""
    most_starts: int | None = None
    """Pods that one plan starts, by priority; the next one goes on. None: all, as of a plan that nobody waits for."""
    isolates: bool = False
    """Whether the plan goes on without a decider that raises, and names it in a finding; False: the error is raised.
    Only code of this repository can raise there, so outside a running operator the error is better seen at once."""
    seed: int = 0
    """Seed of all randomness in deciding: the same snapshot and seed give the same plan."""
