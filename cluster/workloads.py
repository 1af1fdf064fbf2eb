"""Workloads and their hardware: GPU types, requests of pods, gangs that start together, and services of instances."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Literal

import numpy as np

from cluster.demand import DeferredWork, Demand, Slo, ThroughputProfile
from cluster.quotas import QuotaAsk, QuotaShare

WHOLE_GPU_MILLI = 1000
"""Thousandths in a GPU, the unit of sharing in the openb trace and in most GPU-sharing device plugins."""

PODS = "pods"
"""Resource of which every pod takes one: the number of pods that a node's kubelet admits."""

MAX_GPUS_PER_NODE = 16
"""GPUs of the widest common server (HGX with 16 devices). The ledger's matrix is only as wide as the fleet needs."""

MAX_DEVICES_PER_NODE = 62
"""Devices of a node that can be told apart, slices and replicas included: those of a pod are bits of a 64-bit number.
Eight GPUs in seven slices are 56."""


@dataclass(frozen=True, slots=True, order=True)
class PowerPrice:
    """Price and carbon intensity of power from an instant on, until that of the next."""

    from_s: float
    dollars_per_kwh: float = 0.0
    grams_per_kwh: float = 0.0
    """Grams of carbon dioxide, or what warms as much."""


def price_at(series: Sequence[PowerPrice], at_s: float) -> PowerPrice:
    """The one of a series, sorted by instants, that holds at an instant; before its first that, of an empty one 0."""
    return series[max(0, bisect_right(series, at_s, key=attrgetter("from_s")) - 1)] if series else PowerPrice(at_s)


@dataclass(frozen=True, slots=True)
class MixObjective:
    """What a service's mix is to have little of, each with its value in dollars."""

    dollars: float = 1.0
    kwh: float = 0.0
    kg_co2: float = 0.0

    def of_energy(self, price: PowerPrice) -> float:
        """Dollars that a kWh counts, without what is paid for it."""
        return self.kwh + self.kg_co2 * price.grams_per_kwh / 1000


@dataclass(frozen=True, slots=True)
class GpuType:
    """One kind of GPU that a fleet has or could rent."""

    name: str
    """Name, equal to the value of the node label for the product, e.g. `A100`."""
    memory_bytes: int
    price_per_hour: float
    """Price of one device for one hour in US dollars, on demand (or amortised, for owned hardware)."""
    spot_price_per_hour: float | None = None
    inventory: int | None = None
    """Maximum number of devices when no nodes are given; None: unlimited."""
    committed_price_per_hour: float | None = None
    share: float = 1.0
    """Fraction of a physical device that one is: below 1 for a slice or a shared replica."""
    network_bytes_per_s: float | None = None
    """Of its node's network, each way, what one device has of it; None: not known."""
    per_pod: tuple[int, ...] = ()
    """Numbers of devices that a pod may request; empty: any."""
    power_prices: tuple[PowerPrice, ...] = ()
    """Over time, sorted by instants; empty: not known."""
    owned_w: float = 0.0
    """Watts whose price is in `price_per_hour`, at `owned_per_kwh`; 0: it is rented."""
    owned_per_kwh: float = 0.0

    def at(self, at_s: float) -> "GpuType":
        """The same with the price of power at an instant, where owned hardware pays it."""
        if not self.power_prices or not self.owned_w:
            return self
        per_kwh = price_at(self.power_prices, at_s).dollars_per_kwh
        price = self.price_per_hour + self.owned_w / 1000 * (per_kwh - self.owned_per_kwh)
        return replace(self, price_per_hour=max(0.0, price), owned_per_kwh=per_kwh)

    def price(self, *, spot: bool) -> float:
        """Dollars per device and hour; the on-demand price where there is no spot offer."""
        if spot and self.spot_price_per_hour is not None:
            return self.spot_price_per_hour
        return self.price_per_hour


Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """Requirement on a node's labels, with the meaning of core/v1 NodeSelectorRequirement."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """Toleration of a pod for taints, with the meaning of core/v1 Toleration."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""


Terms = tuple[tuple[Requirement, ...], ...]
"""Alternatives; a node must meet every requirement of one of them. Empty: any node."""

OWN_NODE = "(own node)"
"""Value of a requirement `In` on a node's name or hostname: the node on which the pod runs, and no other. It replaces
the node's own name in the shape of a running pod; otherwise each node would have shapes of its own (a DaemonSet pins
each of its pods by name). No node has it, since a label's value has no parentheses."""


def is_pinned(terms: Terms) -> bool:
    """Whether a running pod with these terms may only run on the node where it runs."""
    return any(OWN_NODE in requirement.values for term in terms for requirement in term)


def without_pin(terms: Terms) -> Terms:
    """The same alternatives without the requirement of the pod's own node."""
    free = tuple(tuple(r for r in term if OWN_NODE not in r.values) for term in terms)
    return free if all(free) else ()


SHARES_LABEL = "tonnage.dev/takes-shares"
"""Pseudo-label of nodes on which shares of a device are safe; others' schedulers do not see them."""
PLACEMENT_MODE_LABEL = "tonnage.dev/placement-mode"
"""Label for the placement mode of a node, written into the snapshot where pods differ in their mode (an external
scheduler, a binder of Tonnage): only pods of that mode may use the node. The real node does not have it; the builder
of a snapshot for several modes adds it."""


def in_placement_mode(terms: Terms, mode: str) -> Terms:
    """The same alternatives, on nodes of one placement mode only."""
    wanted = Requirement(PLACEMENT_MODE_LABEL, "In", (mode,))
    return tuple((*term, wanted) for term in terms or ((),))


SPOT_LABELS = {
    "tonnage.dev/capacity-type": "spot",
    "karpenter.sh/capacity-type": "spot",
    "cloud.google.com/gke-spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""Label → its value on spot nodes, which the provider may take away: our own, for fleets with other labels, then those
of Karpenter, GKE, EKS and AKS (their documentation of node labels)."""
_ON_SPOT: Terms = tuple((Requirement(key, "In", (value,)),) for key, value in SPOT_LABELS.items())
OFF_SPOT = tuple(Requirement(key, "NotIn", (value,)) for key, value in SPOT_LABELS.items())
"""Requirements that keep a pod off spot nodes."""


def is_spot(labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is a spot node."""
    # Most nodes have none of these labels, which a look at the keys finds in 0.1 µs.
    return not labels.keys().isdisjoint(SPOT_LABELS) and any(
        labels.get(key) == value for key, value in SPOT_LABELS.items()
    )


COMMITTED_LABELS = {"karpenter.sh/capacity-type": "reserved", "tonnage.dev/capacity-type": "committed"}
"""Label → its value on nodes that are paid for by a commitment (Karpenter's documentation; our own for others)."""


def is_committed(labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is paid for by a commitment."""
    return any(labels.get(key) == value for key, value in COMMITTED_LABELS.items())


def on_capacity(terms: Terms, *, spot: bool) -> Terms:
    """The same alternatives, on spot nodes only, or on all other nodes only."""
    return tuple((*term, *more) for term in terms or ((),) for more in (_ON_SPOT if spot else (OFF_SPOT,)))


def requires_spot(terms: Terms) -> bool:
    """Whether every alternative is restricted to spot nodes."""
    return bool(terms) and all(any((each,) in _ON_SPOT for each in term) for term in terms)


PodState = Literal["", "ending", "nominated"]
"""Whether a pod is being deleted, or only has a node nominated for it by kube-scheduler; mostly neither."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Pods that a rule between pods counts: by namespace and labels, as core/v1 PodAffinityTerm selects them."""

    namespaces: tuple[str, ...] = ()
    """Namespaces by name, sorted."""
    namespace_labels: tuple[Requirement, ...] | None = None
    """Further namespaces: those whose labels meet all of these; None: no further ones."""
    labels: tuple[Requirement, ...] | None = ()
    """Requirements on the labels of its pods, sorted; None: no pod is in it."""
    leaves_out: PodState = ""
    """Pods that are not in it whatever their labels: a spread leaves out those that end, and affinity those that only
    have a node nominated for them, which are no company yet."""


@dataclass(frozen=True, slots=True)
class PodRule:
    """Rule of a pod about the other pods in the topology domain where it starts."""

    kind: Literal["near", "apart", "spread"]
    """near: some pod of the crowd must be there (required pod affinity); apart: none may be (anti-affinity); spread: no
    more than `max_skew` above the domain with fewest (a topology spread constraint, DoNotSchedule)."""
    crowd: Crowd
    key: str
    """Node label whose values are the domains. A node without it is in none: only `apart` allows it."""
    max_skew: int = 1
    min_domains: int = 1
    """With fewer domains than this, the domain with fewest counts as empty."""
    terms: Terms = ()
    """Alternatives of which a node must meet one to have a say in a spread (`nodeAffinityPolicy`); none: all have."""
    heeds_taints: bool = False
    """Whether only nodes whose taints the pod tolerates have one (`nodeTaintsPolicy`)."""


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """Port that a pod takes on its node's own addresses."""

    port: int
    protocol: str = "TCP"
    address: str = "0.0.0.0"  # noqa: S104 - all addresses, as kubelet reads an empty hostIP
    """All addresses by default, which conflict with each single one."""


OWN_VOLUME = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """What a pod asks of the other pods and of the node's attachments, and what others ask about it."""

    rules: tuple[PodRule, ...] = ()
    crowds: tuple[Crowd, ...] = ()
    """Crowds in use that it belongs to."""
    ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    """Volume claims, `namespace/name`, that one pod at a time may use (ReadWriteOncePod)."""
    volumes: tuple[tuple[str, str], ...] = ()
    """Driver and handle of each volume that is attached to its node, where the driver limits their number. Handle
    `OWN_VOLUME`: one that is not shared, so that pods which differ in such volumes alone are of one shape."""

    @property
    def is_bound(self) -> bool:
        """Whether other pods decide where it may run, beyond what they hold of the node's resources."""
        return bool(self.rules or self.ports or self.claims or self.volumes)


ALONE = Beside()


@dataclass(frozen=True, slots=True)
class PodShape:
    """Properties of a pod that decide where it may run. Pods of one shape are interchangeable to the packer."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    gpu_milli: int = 0
    """Thousandths of each of its GPUs; 1000 = whole devices; 0 when it requests none."""
    gpu_types: tuple[str, ...] = ()
    """GPU types it may run on, sorted; empty: any."""
    node_terms: Terms = ()
    tolerations: tuple[Toleration, ...] = ()
    others: tuple[tuple[str, int], ...] = ()
    """Every other resource that it asks for, by name, sorted; amounts above 0 that mean nothing to Tonnage."""
    beside: Beside = ALONE
    refused_on: tuple[str, ...] = ()
    """Nodes, sorted, on which kube-scheduler or a kubelet has just refused a pod of this shape."""
    pool: str = ""
    """`InstanceType.phase` of an instance of one model of several."""

    @property
    def is_whole_gpu(self) -> bool:
        return self.gpus > 0 and self.gpu_milli == WHOLE_GPU_MILLI

    @property
    def total_gpu_milli(self) -> int:
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A pod that waits to be placed and that no planning can see, with the reason."""

    pod: str
    """`namespace/name`."""
    code: str
    """CamelCase, stable, as in a condition's reason."""
    words: str
    kind: str = "Pod"
    """Another kind for a workload of which no pod is planned; `pod` is its name."""


@dataclass(frozen=True, slots=True)
class IdleClaim:
    """A ResourceClaim that Tonnage gave devices, and whose pods all wait for a node."""

    name: str
    """`namespace/name`."""
    pods: tuple[str, ...]
    """`namespace/name` each."""
    allocated_at_s: float
    """Seconds since the epoch."""
    holder: str = ""
    """The entry of the snapshot's pods that holds its devices meanwhile; there need be none."""


@dataclass(frozen=True, slots=True)
class MemberGroup:
    """Members of a gang that cannot stand in for its others: pods of one role, or smaller groups that start whole."""

    name: str
    """Role of its pods, or what tells it from the groups of its kind; unlike that of any group beside it."""
    least: int
    """Fewest members with which it is whole, those of its groups among them."""
    members: tuple[str, ...] = ()
    """Pods that are in none of its groups, `namespace/name`, sorted."""
    groups: tuple["MemberGroup", ...] = ()
    least_groups: int | None = None
    """Number of its groups that must be whole; None: all of them."""
    most: int = 0
    """Number of members above which further ones are of no use; 0: as many as there are."""
    within: str | None = None
    """Node label that its members must share; None: what the group around it says."""
    prefer_within: str | None = None
    """Node label that its members should share where possible."""

    @property
    def pods(self) -> tuple[str, ...]:
        """Its members, those of its groups among them."""
        return (*self.members, *(pod for group in self.groups for pod in group.pods))

    def lacks(self, running: frozenset[str]) -> int:
        """Members that must still start, so that it is whole, beside these of its gang that run."""
        return _total(self.short_of(running))

    def first_of(self, waiting: Sequence[str], running: frozenset[str]) -> list[str]:
        """Those waiting members, in their order, that complete it, beside these that run."""
        chosen = _first_of(self.groups, self.least_groups, waiting, running)
        mine = frozenset(self.pods).difference(chosen)
        others = [pod for pod in waiting if pod in mine]
        return [*chosen, *others[: max(0, self.lacks(running) - len(chosen))]]

    def short_of(self, running: frozenset[str]) -> "Short":
        """What it lacks beside these that run, by innermost group."""
        return _short(self.name, self.least - len(running.intersection(self.pods)), self, running)


Short = list[tuple[str, int]]
"""Number of members that are missing, by innermost group."""


def _total(short: Short) -> int:
    return sum(count for _, count in short)


def _short(name: str, missing: int, of: "MemberGroup | Gang", running: frozenset[str]) -> Short:
    """What is missing so that so many of its groups are whole, of those that lack fewest, and the rest."""
    parts = sorted((group.short_of(running) for group in of.groups), key=_total)[: of.least_groups]
    found = [each for part in parts for each in part]
    rest = missing - _total(found)
    return [*found, (name, rest)] if rest > 0 else found


def _first_of(
    groups: Iterable[MemberGroup], least: int | None, waiting: Sequence[str], running: frozenset[str]
) -> list[str]:
    """Waiting members that complete so many of these groups: of those that can be completed and lack fewest."""
    parts = [(group.lacks(running), group.first_of(waiting, running)) for group in groups]
    parts.sort(key=lambda part: (len(part[1]) < part[0], part[0]))
    return [pod for _, first in parts[:least] for pod in first]


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that are only useful together: at least `min_members` of them start, and so of each group, or none does.

    It is the root of a tree of groups; most gangs have none, so that any `min_members` will do.
    """

    name: str
    min_members: int
    within: str | None = None
    """Node label that all members must share (a zone, rack or NIC-type label); None: anywhere."""
    prefer_within: str | None = None
    """Node label that members should share where possible; the plan uses as few of its values as it can."""
    priority: int = 0
    asked_members: int = 0
    """Members that were asked for, where `min_members` differs because the gang lost one; 0: `min_members`."""
    must_restart: bool = False
    """Whether it lost a member and is stopped whole as soon as another is there to take its place."""
    groups: tuple[MemberGroup, ...] = ()
    """Groups of its members, such as roles; a member that is in none of them counts for the gang alone."""
    least_groups: int | None = None
    """Number of its groups that must be whole; None: all of them."""
    most_members: int = 0
    """Number of members above which further ones are of no use; 0: as many as there are."""
    done: int = 0
    """Members that finished, where they are known to."""

    def lacks(self, running: Collection[str]) -> int:
        """Members that must still start, so that the gang is whole, beside these that run."""
        missing = self.min_members - len(running)
        return _total(_short("", missing, self, frozenset(running))) if self.groups else missing

    def missing(self, running: Collection[str]) -> str:
        """What it lacks beside these that run, in words (`1 of trainer, 2 of any role`); empty: nothing."""
        found = _short("any role", self.min_members - len(running), self, frozenset(running))
        return ", ".join(f"{count} of {name}" if self.groups else str(count) for name, count in found)

    def needed_first(self, waiting: Sequence[str], running: Collection[str]) -> list[str]:
        """Its waiting members in the same order, but those that its groups need before those that could be spared."""
        needed = frozenset(_first_of(self.groups, self.least_groups, waiting, frozenset(running)))
        return sorted(waiting, key=lambda pod: pod not in needed)


@dataclass(frozen=True, slots=True, order=True)
class InstanceType:
    """Hardware of one instance of a service: its GPU type, its width, and the capacity type of its nodes."""

    gpu_type: str
    gpus: int = 1
    """Devices of one instance (the degree of its tensor parallelism); 0: it has memory of such a node alone."""
    spot: bool = False
    """Whether it runs on spot nodes only; otherwise on all others."""
    phase: str = ""
    """Pool of its service that it is in: of a model of several, or of a phase where those are named together."""

    @property
    def name(self) -> str:
        """Name such as `a100`, `a100x4` or `a100x4-spot`, valid as part of the names of Kubernetes objects; with its
        phase `prefill/a100`."""
        width = f"x{self.gpus}" if self.gpus != 1 else ""
        phase = f"{self.phase}/" if self.phase else ""
        return f"{phase}{self.gpu_type}{width}{'-spot' if self.spot else ''}"

    def __str__(self) -> str:
        return self.name


def instance_type_named(name: str, gpu_types: Collection[str]) -> InstanceType:
    """Instance type of a name, among these GPU types; a name of none of them is taken for a GPU type's."""
    phase, _, name = name.rpartition("/")
    if name not in gpu_types and (parts := _INSTANCE_NAME.fullmatch(name)):
        for gpu_type, width in ((parts[1] + (parts[2] or ""), "1"), (parts[1], parts[3] or "1")):
            if gpu_type in gpu_types:
                return InstanceType(gpu_type, int(width), bool(parts[4]), phase)
    return InstanceType(name, phase=phase)


_INSTANCE_NAME = re.compile(r"(.+?)(x(0|[1-9][0-9]?))?(-spot)?")


LOAD_S = 150.0
"""Time from an instance's order to its readiness, where none was observed: the mean that a ScalingPolicy assumes."""
STAY_S = 3600.0
"""Time for which a mix is expected to stay. Chosen: demand asks for another about as soon."""


@dataclass(frozen=True, slots=True)
class Routes:
    """How requests come to a service's instances."""

    gateway: str
    """`name`, or `namespace/name`."""
    hostnames: tuple[str, ...] = ()
    port: int = 8000
    picker: str = ""
    """Service of the endpoint picker of its InferencePools; empty: it has none of these."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One of the models that may answer a service's requests."""

    name: str
    pool: str = ""
    """`InstanceType.phase` of its instances; empty: it is the only one."""
    quality: float = 1.0


CACHE = "cache"
"""Phase of the pool that keeps the prompts' cache."""


@dataclass(frozen=True, slots=True)
class PromptCache:
    """Pool of main memory in which prompts find the cache of their beginnings, which then need no prefill."""

    most: int
    """Instances that it may have."""
    memory_bytes: int
    """Of each instance."""
    price_per_hour: float
    """Of each instance."""
    hits: tuple[tuple[float, float], ...]
    """Time of the demand whose prompts it holds, and the fraction of their tokens that is found in it; both rise."""
    instances: int = 0
    """Those that are planned for."""

    def found_share(self, bytes_per_s: float) -> float:
        """Fraction of the prompts' tokens that is found. bytes_per_s: cache of all prompts that come."""
        held_s = self.instances * self.memory_bytes / max(bytes_per_s, 1e-9)
        times, shares = zip((0.0, 0.0), *self.hits, strict=True)
        return float(np.interp(held_s, times, shares))


@dataclass(frozen=True, slots=True, eq=False)
class ModelService:
    """Model behind an endpoint: its demand, its SLO, and the needs of one instance besides GPUs."""

    name: str
    """`namespace/name`."""
    model: str
    demand: Demand | None
    """Measured demand. None: not measured. That is a condition to report, never a demand of zero."""
    slo: Slo
    headroom_share: float | None = None
    """Fraction of every instance kept free for queueing, 0 ≤ fraction < 1; None: from the service's own bursts."""
    gpu_types: tuple[str, ...] = ()
    """GPU types it may use; empty: all that have a profile."""
    spot: bool = False
    """Whether it may use spot nodes besides the others; without nodes: whether it pays spot prices."""
    continuous_split: bool = False
    """Whether a bucket's load may be split in any proportion, instead of in `slice_factor` equal parts."""
    slice_factor: int = 8
    instance_cpu_milli: int = 0
    instance_memory_bytes: int = 0
    priority: int = 0
    replicas: Mapping[InstanceType, int] | None = None
    """Instances per instance type that are requested now; None: never planned."""
    no_pods: str = ""
    """Why the API server takes no pods of its Deployments, such as Pod Security; empty: it does."""
    node_terms: Terms = ()
    """Nodes that its instances must use, whatever their GPU type."""
    tolerations: tuple[Toleration, ...] = ()
    placement_modes: Mapping[str, str] = field(default_factory=dict)
    """Placement mode (see PLACEMENT_MODE_LABEL) of instances per GPU type; a type without an entry: any mode."""
    is_planned_only: bool = False
    """Whether its instances are run by other means: `replicas` is the mix that was planned last."""
    start_share: float = LOAD_S / STAY_S
    """Cost of a start, as a fraction of the instance's price per hour: the time from its order to its readiness, in
    which it is paid for and serves nothing, over that for which its mix is expected to stay."""
    is_loading: bool | None = None
    """Whether instances that were started are not ready yet, and may still become so; None: not known."""
    quota_ask: QuotaAsk | None = None
    """What one instance counts in quotas, without its devices; None: its instances are run by other means."""
    quotas: tuple[QuotaShare, ...] = ()
    """Quotas that bound it."""
    phase: str = ""
    """`prefill` or `decode`: one pool of the service `part_of`, if its phases are apart; or the pool of its cache;
    empty: of whole requests."""
    part_of: str = ""
    cache: PromptCache | None = None
    """Of the whole service, in each of its pools."""
    objective: MixObjective | None = None
    """None: dollars alone."""
    watts: Mapping[InstanceType, float] = field(default_factory=dict)
    """Draw of one busy instance of each type for which it is known, whatever its capacity type."""
    routes: Routes | None = None
    """None: they are not written."""
    deferred: DeferredWork | None = None
    deferred_per_s: float = 0.0
    """What of that is to be answered now; `demand` includes it."""
    own_profiles: tuple[ThroughputProfile, ...] = ()
    """Those of models of which it uses no others: estimated for it, or beside its adapters."""
    served: tuple[ServedModel, ...] = ()
    """Models any of which may answer; empty: `model` alone."""
    quality_floors: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    """Fractions of the requests of each length, which sum to 1, with the least quality of who answers them."""
    adapters: tuple[str, ...] = ()
    """Of its model, which each instance serves as well, as `NAME` or `NAME=SOURCE`."""
    estimated: str = ""
    """What of its throughput is estimated, and by what; empty: all was measured."""
    was_estimated: bool = False
    """Whether it ever was: such instances may run on types that no profile has now."""
    unready: Mapping[InstanceType, int] = field(default_factory=dict)
    """Of `replicas`, those that do not serve yet, or not any more."""
    outdated: tuple[InstanceType, ...] = ()
    """Types whose instances run by an earlier specification; `replicas` leaves them out."""

    @property
    def models(self) -> tuple[ServedModel, ...]:
        return self.served or (ServedModel(self.model),)

    def instance_shape(self, instance_type: InstanceType) -> PodShape:
        """Request of one instance of this service to a node.

        Where the service may use spot nodes, its instance types divide them from the others.
        """
        mode = self.placement_modes.get(instance_type.gpu_type)
        terms = on_capacity(self.node_terms, spot=instance_type.spot) if self.spot else self.node_terms
        return PodShape(
            cpu_milli=self.instance_cpu_milli,
            memory_bytes=self.instance_memory_bytes,
            gpus=instance_type.gpus,
            gpu_milli=WHOLE_GPU_MILLI if instance_type.gpus else 0,
            gpu_types=(instance_type.gpu_type,),
            node_terms=terms if mode is None else in_placement_mode(terms, mode),
            tolerations=self.tolerations,
            pool=instance_type.phase,
        )
