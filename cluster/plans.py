"""Plans: actions in phases with their reasons, unplaced workloads with theirs, and certificates of optimality."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np

from cluster import arrays, autoscaling, demand, workloads
from cluster.actions import Action


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason of a decision: a machine-readable code, a human-readable text, and the figures behind it."""

    code: str
    """CamelCase, stable, as in a Kubernetes condition's reason: `LeastBidPrice`, `NoGpuFree`."""
    words: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    action: Action
    reason: Reason


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps that may be applied concurrently; a phase starts after the one before it is done.

    A whole phase may stop pods and start others in their place: stops come first.
    """

    name: str
    steps: tuple[Step, ...]
    whole: bool = False
    """Whether the steps are all or nothing (a gang's binds): if one cannot be applied, completed ones are undone."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Pod or gang that could not be placed now, with the resource that was short."""

    workload: str
    """`Pod/namespace/name` or `Gang/namespace/name`."""
    reason: Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """Verdict or forecast of a decider without an action, such as a node's health or a queue's growth."""

    about: str
    """`Kind/name`: `Node/name`, `ModelService/namespace/name`."""
    reason: Reason
    """The finding, as code, text and figures."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Step of a plan that the guard removed."""

    step: Step
    reason: Reason


CutShort = Literal["", "work", "time"]
"""Limit that ended a search early: `work`, the same on every machine, or `time`, the last resort."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Proven quality of a solution. For minimisation: bound ≤ optimum ≤ objective."""

    objective: float
    bound: float
    solver: str
    seconds: float
    cut_short: CutShort = ""
    """Limit that ended the search before the gap was closed; empty for none."""

    def plus(self, other: "Certificate") -> "Certificate":
        """Certificate of two independent parts together."""
        solver = self.solver if self.solver == other.solver else f"{self.solver}, {other.solver}"
        return Certificate(
            self.objective + other.objective,
            self.bound + other.bound,
            solver,
            self.seconds + other.seconds,
            worse_cut(self.cut_short, other.cut_short),
        )

    @property
    def gap(self) -> float:
        """(objective - bound) / objective, 0 when proven optimal."""
        if self.objective == self.bound:
            return 0.0
        return abs(self.objective - self.bound) / max(abs(self.objective), 1e-12)


def worse_cut(*cuts: CutShort) -> CutShort:
    """Most severe of several limits: time before work before none."""
    return "time" if "time" in cuts else "work" if "work" in cuts else ""


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """Fraction of each bucket's requests for each instance type. The mix meets its SLO only with this routing."""

    grid: demand.LengthGrid
    instance_types: tuple[workloads.InstanceType, ...]
    weight: arrays.FloatArray
    """Shape (inputs, outputs, instance types), 0 to 1; sums to 1 over types where the bucket has demand, else 0."""


@dataclass(frozen=True, slots=True, eq=False)
class ServicePlan:
    """Mix of a service: instances per instance type, their cost, and the routing of requests to them."""

    service: str
    instances: Mapping[workloads.InstanceType, int]
    """Empty when refused."""
    cost_per_hour: float
    routing: Routing | None
    certificate: Certificate | None
    notes: tuple[Reason, ...] = ()
    """The binding constraint, and the savings from one more GPU or a looser SLO."""
    refusal: Reason | None = None
    """Why no mix exists; the running instances then stay unchanged."""

    def with_pool(self, phase: str, pool: "ServicePlan") -> "ServicePlan":
        """This plan together with that of a pool of the service for one phase."""
        own, theirs, routing = self.certificate, pool.certificate, self.routing
        if pool.routing is not None:
            types = tuple(replace(each, phase=phase) for each in pool.routing.instance_types)
            weight = pool.routing.weight
            if routing is not None:
                types, weight = routing.instance_types + types, np.concatenate((routing.weight, weight), axis=2)
            routing = Routing(pool.routing.grid, types, weight)
        return replace(
            self,
            instances={**self.instances, **{replace(each, phase=phase): n for each, n in pool.instances.items()}},
            cost_per_hour=self.cost_per_hour + pool.cost_per_hour,
            routing=routing,
            certificate=own.plus(theirs) if own and theirs else own or theirs,
            notes=(*self.notes, *(replace(n, words=f"{phase}: {n.words}") for n in pool.notes if pool.instances)),
            refusal=self.refusal or pool.refusal,
        )


def plans_of_services(
    planned: Iterable[ServicePlan], services: Iterable[workloads.ModelService]
) -> dict[str, ServicePlan]:
    """Plans by service, each together with those of its pools by phase."""
    pools, whole = {each.name: each for each in services if each.part_of}, dict[str, ServicePlan]()
    for each in planned:
        pool = pools.get(each.service)
        name = each.service if pool is None else pool.part_of
        whole[name] = each if pool is None or name not in whole else whole[name].with_pool(pool.phase, each)
    return whole


class HealthResult:
    """Base of what remediation decided, whose fields only remediation and the loop that observes health know."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits on what one plan may do, independent of the deciders, as shipped: LimitSettings describes each of them."""

    max_evictions_share: float = 0.05
    max_evictions_floor: int = 10
    max_stops_per_seat: int = 16
    max_moves_share: float = 0.25
    max_nodes_out_share: float = 0.10
    max_restarts: int = 4
    max_stopped_share: float = 1.0
    max_age_s: float = 180.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Proposal of the deciders for one snapshot."""

    phases: tuple[Phase, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    services: tuple[ServicePlan, ...] = ()
    refused: tuple[Refused, ...] = ()
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    """Certificates of the whole plan, by the part that they certify: `mix`, `gpu_packing`."""
    findings: tuple[Finding, ...] = ()
    """Findings of all deciders, in the deciders' order; they change nothing."""
    expected: tuple[demand.ExpectedDemand, ...] = ()
    """Demands that later deciders plan services for, instead of those in their specs."""
    limits: tuple[autoscaling.ConcurrencyLimit, ...] = ()
    """Concurrency limits of scaled targets, for their policies' statuses; clients read them there."""
    health: HealthResult | None = None
    """Next state of all incidents, for the loop that observes health; None: nothing was decided on."""
    cut_short: tuple[Reason, ...] = ()
    """Parts that the time limit ended early. Empty: the same input gives the same plan on every machine."""

    def steps(self) -> Iterator[Step]:
        """All steps, in the order of application."""
        for phase in self.phases:
            yield from phase.steps

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(step.action for step in self.steps())

    def joined(self, other: "Plan") -> "Plan":
        """This plan followed by another one, made for the cluster after this one.

        Certificates of the same name belong to different parts of the cluster: their costs add up, and so do bounds.
        """
        certificates = dict(self.certificates)
        for name, theirs in other.certificates.items():
            mine = certificates.get(name)
            certificates[name] = theirs if mine is None else mine.plus(theirs)
        both = {each.name: (getattr(self, each.name), getattr(other, each.name)) for each in fields(self)}
        lists = {name: mine + theirs for name, (mine, theirs) in both.items() if isinstance(mine, tuple)}
        return replace(self, **lists, certificates=certificates, health=other.health or self.health)
