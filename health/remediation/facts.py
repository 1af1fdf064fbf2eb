"""Situation: what is the case at one instant about jobs, nodes and budgets, as far as remediation needs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from health.remediation.evidence import NodeKey


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One running or pending pod of a job."""

    uid: str
    node: str
    """Name of its node; empty while it is pending."""
    created_s: float
    gpus: int = 8


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job with gang semantics: it makes progress with all of its ranks or with none."""

    name: str
    """`namespace/name`."""
    incarnation: str
    """Changes with every restart of the gang, in place or not."""
    started_s: float
    """When this run began: what was seen before is of no concern to it."""
    pods: tuple[PodFacts, ...]
    min_available: int
    """Pods without which it does not run."""
    restart_s: float
    """From the stop of the gang to the first step on other nodes, without work that is done again."""
    in_place_restart_s: float
    """The same on the nodes it has: no pod is placed anew, images and caches are warm."""
    checkpoint_at_s: float
    """When its newest complete checkpoint was begun, in this run or in one before; its first start without any."""
    checkpoint_interval_s: float
    checkpoint_save_s: float = 0.0
    """Stall of the job per checkpoint."""
    checkpoints_on_demand: bool = False
    """Whether it writes a checkpoint when asked, so that a move need not wait for the next."""
    elastic_pods: tuple[int, ...] = ()
    """Numbers of pods it can run with instead of all."""
    restarted_s: tuple[float, ...] = ()
    """Instants of its restarts in the last day, from the gang's status."""
    progressed_s: float = float("-inf")
    """Last time that it was seen to finish a step: a hang seen before that is over."""
    disruptions_allowed: int | None = None
    """Pods that its disruption budgets allow to be evicted now; None without a budget."""

    @property
    def gpus(self) -> int:
        return sum(pod.gpus for pod in self.pods)

    def at_risk_s(self, now_s: float) -> float:
        """Work of this run that a restart now would have to do again."""
        return max(now_s - max(self.checkpoint_at_s, self.started_s), 0.0)


@dataclass(frozen=True, slots=True)
class OurTaint:
    """Taint that Tonnage set: it names its incident, so that the incident can be rebuilt from it after a crash."""

    incident: str
    generation: int
    at_s: float
    on_probation: bool = False
    """The node takes work of low value only."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node."""

    key: NodeKey
    gpus: int = 8
    domains: tuple[str, ...] = ()
    """Failure domains that it is in, smallest first: `switch/leaf-3`, `rack/7`."""
    taint: OurTaint | None = None
    owner: str = ""
    """Another remediation that owns the node by its taint or label; ours waits for it."""
    ready: bool = True
    tested_s: float = float("-inf")
    """Last time the node passed its own test after a repair or in quarantine."""
    released_s: float = float("-inf")
    """Last time a person released it (`tonnage health release`)."""
    shared: bool = False
    """Pods of more than one job, or of none known, are on it."""
    own_speed_share: float = 1.0
    """Speed that Tonnage's own limits (watts, CPU quota) leave it, as a share of full speed."""
    limited_since_s: float = float("inf")
    """When these limits began."""


@dataclass(frozen=True, slots=True)
class Situation:
    """All facts at one instant."""

    now_s: float
    """Seconds since the epoch, the controller's clock."""
    jobs: Mapping[str, JobFacts] = field(default_factory=dict)
    """By name."""
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    """By name."""
    spares: tuple[str, ...] = ()
    """Names of healthy nodes that are free for a job at once."""
    heard_share: float = 1.0
    """Share of the expected heartbeats that arrive: an analyser that hears little blames nobody."""
