"""Workloads: what a pod asks of a node, which pods start together, and the services that pods belong to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cluster.demand import Demand, Slo
from cluster.hardware import WHOLE_GPU_MILLI

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a node's labels, with the meaning of core/v1 NodeSelectorRequirement."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """Which taints a pod puts up with, with the meaning of core/v1 Toleration."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""


Terms = tuple[tuple[Requirement, ...], ...]
"""Alternatives; a node must meet every requirement of one of them. Empty: any node."""

WAY_LABEL = "tonnage.dev/way"
"""Stands among a node's labels where pods differ in who may put them there (a scheduler, a binder of our own): which
of them this node is left to. No label of the real node; whoever makes a snapshot for several ways writes it."""


def on_way(terms: Terms, way: str) -> Terms:
    """The same alternatives, on nodes of one way only."""
    wanted = Requirement(WAY_LABEL, "In", (way,))
    return tuple((*term, wanted) for term in terms or ((),))


@dataclass(frozen=True, slots=True)
class PodShape:
    """Everything about a pod that decides where it may run. Pods of one shape are interchangeable to the packer."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    gpu_milli: int = 0
    """Thousandths of each of its GPUs; 1000 = whole devices; 0 when it asks for none."""
    gpu_types: tuple[str, ...] = ()
    """GPU types it may run on, sorted; empty: any."""
    node_terms: Terms = ()
    tolerations: tuple[Toleration, ...] = ()

    @property
    def is_whole_gpu(self) -> bool:
        return self.gpus > 0 and self.gpu_milli == WHOLE_GPU_MILLI

    @property
    def total_gpu_milli(self) -> int:
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that are only useful together: at least `min_members` of them start, or none does."""

    name: str
    min_members: int
    within: str | None = None
    """Node label that all members must share (a zone, rack or NIC-type label); None: anywhere."""
    prefer_within: str | None = None
    """Node label that members should share where possible; the plan uses as few of its values as it can."""
    priority: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ModelService:
    """A model behind an endpoint: its demand, its promise, and what one instance needs besides GPUs."""

    name: str
    """`namespace/name`."""
    model: str
    demand: Demand | None
    """None: nobody has measured it. That is a condition to report, never a demand of zero."""
    slo: Slo
    headroom_share: float | None = None
    """Share of every instance kept free for queueing, 0 ≤ share < 1; None: as much as its own bursts ask for."""
    gpu_types: tuple[str, ...] = ()
    """GPU types it may use; empty: all that have a profile."""
    spot: bool = False
    continuous_split: bool = False
    """Whether a bucket's load may be split in any proportion, instead of in `slice_factor` equal parts."""
    slice_factor: int = 8
    instance_cpu_milli: int = 0
    instance_memory_bytes: int = 0
    priority: int = 0
    replicas: Mapping[str, int] | None = None
    """Instances per GPU type that are asked for now; None: never planned."""
    scaled_at_s: float | None = None
    """When `replicas` last changed; None: not known, so it does not hold anything back."""
    node_terms: Terms = ()
    """Nodes that its instances are kept to, whatever their GPU type."""
    tolerations: tuple[Toleration, ...] = ()
    ways: Mapping[str, str] = field(default_factory=dict)
    """Per GPU type, the way (see WAY_LABEL) in which instances get onto nodes; a type that is not there: any way."""

    def instance_shape(self, gpu_type: str, gpus_per_instance: int) -> PodShape:
        """What one instance of this service asks of a node of that type."""
        way = self.ways.get(gpu_type)
        return PodShape(
            cpu_milli=self.instance_cpu_milli,
            memory_bytes=self.instance_memory_bytes,
            gpus=gpus_per_instance,
            gpu_milli=WHOLE_GPU_MILLI,
            gpu_types=(gpu_type,),
            node_terms=self.node_terms if way is None else on_way(self.node_terms, way),
            tolerations=self.tolerations,
        )
