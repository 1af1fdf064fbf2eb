"""Plans: actions in phases with their reasons, what could not be done and why, and certificates of quality."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from cluster.actions import Action
from cluster.arrays import FloatArray
from cluster.demand import LengthGrid


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something was decided: a code for machines, words for people, and the figures behind it."""

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
    """Steps that may happen together; a phase starts when the one before it is done."""

    name: str
    steps: tuple[Step, ...]
    whole: bool = False
    """All or nothing: when one step cannot be done, those that were done are undone (a gang's binds)."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod or gang that could not be placed now, with what was short where."""

    workload: str
    """`Pod/namespace/name` or `Gang/namespace/name`."""
    reason: Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict or a forecast that a decider states without an action: a node's health, a queue's growth."""

    about: str
    """`Kind/name`: `Node/name`, `ModelService/namespace/name`."""
    reason: Reason
    """What was found, as code, words and figures."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A step that a plan held and the guard struck out."""

    step: Step
    reason: Reason


CutShort = Literal["", "work", "time"]
"""Limit that ended a search early: `work`, the same on every machine, or `time`, the last resort."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good an answer is proven to be. For minimisation: bound ≤ optimum ≤ objective."""

    objective: float
    bound: float
    solver: str
    seconds: float
    cut_short: CutShort = ""
    """Limit that kept the search from closing the gap; empty for none."""

    def plus(self, other: "Certificate") -> "Certificate":
        """The certificate of two parts that have nothing to do with each other."""
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
    """Gravest of several limits: time before work before none."""
    return "time" if "time" in cuts else "work" if "work" in cuts else ""


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """Which share of each bucket's requests goes to which GPU type. Without it a mix misses its SLO."""

    grid: LengthGrid
    gpu_types: tuple[str, ...]
    weight: FloatArray
    """Shape (inputs, outputs, gpu types); adds up to 1 over the types where the bucket has demand, else 0."""


@dataclass(frozen=True, slots=True, eq=False)
class ServicePlan:
    """How many instances of which GPU types serve a service, at what cost, and how requests reach them."""

    service: str
    instances: Mapping[str, int]
    """GPU type → instances. Empty when refused."""
    cost_per_hour: float
    routing: Routing | None
    certificate: Certificate | None
    notes: tuple[Reason, ...] = ()
    """Which constraint binds, and what the next GPU or a looser SLO would save."""
    refusal: Reason | None = None
    """Why no plan exists; then the running instances stay as they are."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a brain proposes for one snapshot."""

    phases: tuple[Phase, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    services: tuple[ServicePlan, ...] = ()
    refused: tuple[Refused, ...] = ()
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    """Certificates of the whole plan by what they certify, e.g. `mix`, `gpu_packing`."""
    findings: tuple[Finding, ...] = ()
    """Findings of all deciders, in their order; nothing is applied by them."""
    cut_short: tuple[Reason, ...] = ()
    """Parts that time cut off. Empty: the same input gives this very plan on every machine, however busy."""

    def steps(self) -> Iterator[Step]:
        """All steps, in the order in which they are to happen."""
        for phase in self.phases:
            yield from phase.steps

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(step.action for step in self.steps())

    def joined(self, other: "Plan") -> "Plan":
        """This plan, followed by another one that was made for the world after this one.

        Certificates of one name speak of different parts of the cluster: their costs add up, and so do their bounds.
        """
        certificates = dict(self.certificates)
        for name, theirs in other.certificates.items():
            mine = certificates.get(name)
            certificates[name] = theirs if mine is None else mine.plus(theirs)
        return replace(
            self,
            phases=self.phases + other.phases,
            unplaced=self.unplaced + other.unplaced,
            services=self.services + other.services,
            refused=self.refused + other.refused,
            certificates=certificates,
            findings=self.findings + other.findings,
            cut_short=self.cut_short + other.cut_short,
        )
