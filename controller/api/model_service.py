"""ModelService: a model behind an endpoint: what arrives, what is promised, and what an instance needs besides GPUs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from controller.api.conditions import ObservedStatus
from controller.api.fields import (
    DnsLabel,
    Duration,
    Instant,
    ListOf,
    NumberFromZero,
    ObjectName,
    Open,
    QuantityFromZero,
    Strict,
    Told,
    as_set,
    keyed_by,
)
from controller.api.flaw import Flaw, Path, column_flaws, repeat_flaws, row_flaws
from controller.api.kind import Kind
from controller.api.labels import SERVICE_LABEL
from controller.api.metadata import ApiVersion, OwnMeta
from controller.api.model_profile import Edges, Matrix, rising
from controller.api.printer_columns import AGE, Column, condition, reason
from controller.api.rule import Rule, fits_label, unchanging

HISTOGRAM_TOLERANCE = 1e-3
"""How far from 1 a histogram may add up to: 60 shares, each rounded to four places, are off by 0.003 at most in
theory and by 0.0002 in practice. What is nearer is scaled to exactly 1."""


class ServiceSlo(Strict):
    """The promise of the service."""

    tpot: Duration = Field(description="Mean time per output token of a request, at most (`40ms`).")


class ServiceDemand(Strict):
    """What arrives at the service."""

    requests_per_second: NumberFromZero = Field(description="Requests per second of all lengths together.")
    input_tokens: Edges = Field(description="Upper edges of the prompt lengths, tokens, strictly rising.")
    output_tokens: Edges = Field(description="Upper edges of the answer lengths, tokens, strictly rising.")
    histogram: Matrix = Field(
        description="Share of the requests in each bucket, rows follow inputTokens, columns outputTokens; adds up to 1."
    )


class InstanceResources(Strict):
    """What one instance needs of its node besides GPUs."""

    cpu: QuantityFromZero = Field(default=Decimal(0), description="CPU of one instance, cores (`8`, `500m`).")
    memory: QuantityFromZero = Field(default=Decimal(0), description="Main memory of one instance, bytes (`64Gi`).")


class TemplateMeta(Strict):
    """What the pods of an instance carry besides the labels of Tonnage."""

    labels: Annotated[dict[str, str], Field(max_length=64)] = Field(default={}, description="Labels of the pods.")
    annotations: Annotated[dict[str, str], Field(max_length=64)] = Field(
        default={}, description="Annotations of the pods."
    )


class TemplateContainer(Open):
    """A container of core/v1. The first one of the pod gets the GPUs."""

    name: DnsLabel = Field(description="Name of the container, unique in the pod.")


class TemplateSpec(Open):
    """A pod's spec of core/v1. Besides containers, what keeps its pods to some nodes is read when the mix is planned
    (controller/snapshot/node_affinity.py); the rest is looked at only when the pods are made."""

    containers: Annotated[ListOf[TemplateContainer], Field(min_length=1, max_length=64), keyed_by("name")] = Field(
        description="Containers of core/v1; the first one gets the GPUs."
    )


class InstanceTemplate(Strict):
    """What one instance runs."""

    metadata: TemplateMeta = Field(
        default=TemplateMeta(), description="Labels and annotations of its pods, as in a Deployment."
    )
    spec: TemplateSpec = Field(
        description=(
            "The pod's spec of core/v1. Its nodeSelector, required node affinity and tolerations bound the mix: it "
            "spends only devices of nodes that they allow."
        )
    )


class ModelServiceSpec(Strict):
    model: str = Field(min_length=1, max_length=253, description="The model that is served; profiles are found by it.")
    slo: ServiceSlo = Field(description="What the service promises to its users.")
    demand: ServiceDemand | None = Field(
        default=None, description="What arrives; left out while nobody has measured it, which is never taken for zero."
    )
    gpu_types: Annotated[ListOf[ObjectName], as_set()] = Field(
        default=(), max_length=64, description="GPUTypes it may use; empty: all that have a profile of the model."
    )
    spot: bool = Field(default=False, description="Whether spot devices, and their price, may be used.")
    headroom: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description=(
            "Share of every instance that is kept free for queueing, 0 to below 1; left out: as much as the bursts of "
            "this demand ask for."
        ),
    )
    split: Literal["sliced", "continuous"] = Field(
        default="sliced",
        description="Whether the load of a bucket is cut into sliceFactor equal parts or into any proportion.",
    )
    slice_factor: int = Field(
        default=8, ge=1, le=1000, description="Equal parts that the load of a bucket is cut into when split is sliced."
    )
    instance: InstanceResources = Field(
        default=InstanceResources(), description="What one instance needs of its node besides GPUs."
    )
    template: InstanceTemplate | None = Field(
        default=None,
        description=(
            "Pod template of one instance, as a Deployment has it; Tonnage adds labels, GPUs and where it runs. Left "
            "out: the service is planned, and somebody else runs it."
        ),
    )
    priority: int = Field(
        default=0, ge=-(2**31), le=2**31 - 1, description="Priority of the instances, as in a pod's spec.priority."
    )


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
PerGPUType = Annotated[dict[str, Count], Field(max_length=64)]


class RoutingWeights(Told):
    """Which share of each bucket's requests goes to one GPU type."""

    gpu_type: ObjectName = Field(description="Name of the GPUType.")
    share: Annotated[ListOf[Annotated[ListOf[Share], Field(max_length=64)]], Field(max_length=64)] = Field(
        description="Share of the requests of each bucket, 0 to 1; rows follow inputTokens, columns outputTokens."
    )


class RoutingStatus(Told):
    """How requests are to be spread over the GPU types. Without it a mix misses its promise."""

    input_tokens: Edges = Field(description="Upper edges of the prompt lengths, tokens.")
    output_tokens: Edges = Field(description="Upper edges of the answer lengths, tokens.")
    weights: Annotated[ListOf[RoutingWeights], Field(max_length=64), keyed_by("gpuType")] = Field(
        description="One table per GPU type; over all types they add up to 1 where a bucket has demand, else to 0."
    )


class ModelServiceStatus(ObservedStatus):
    """What Tonnage wrote down: Accepted, Planned (a mix exists), Ready (all its instances run), Degraded."""

    replicas: PerGPUType | None = Field(
        default=None, description="Instances per GPUType that are asked for now; left out: never planned."
    )
    running: PerGPUType | None = Field(default=None, description="Instances per GPUType that run.")
    wanted_instances: int | None = Field(default=None, ge=0, description="Instances that are asked for, of all types.")
    running_instances: int | None = Field(default=None, ge=0, description="Instances that run, of all types.")
    last_scale_time: Instant | None = Field(default=None, description="When replicas last changed.")
    cost_per_hour: NumberFromZero | None = Field(
        default=None, description="What the instances asked for cost, dollars per hour."
    )
    bound_per_hour: NumberFromZero | None = Field(
        default=None, description="What no mix can cost less than, dollars per hour, as the solver proved."
    )
    gap: NumberFromZero | None = Field(
        default=None, description="(costPerHour - boundPerHour) / costPerHour; 0: proven to be the cheapest mix."
    )
    routing: RoutingStatus | None = Field(default=None, description="How requests are to be spread over GPU types.")


class ModelService(Strict):
    """A model behind an endpoint."""

    api_version: ApiVersion
    kind: Literal["ModelService"]
    metadata: OwnMeta
    spec: ModelServiceSpec = Field(description="What is served, what arrives, what is promised.")
    status: ModelServiceStatus = Field(default=ModelServiceStatus(), description="Written by Tonnage.")


def _of_demand(check: Callable[[ServiceDemand, Path], Iterable[Flaw]]) -> Callable[[Any], Iterable[Flaw]]:
    def flaws(service: ModelService) -> Iterable[Flaw]:
        return check(service.spec.demand, ("spec", "demand", "histogram")) if service.spec.demand else ()

    return flaws


def _edges(side: str) -> Callable[[Any], tuple[int, ...]]:
    return lambda service: getattr(service.spec.demand, side) if service.spec.demand else ()


def _sum_flaws(demand: ServiceDemand, path: Path) -> Iterator[Flaw]:
    misshapen = any(True for check in (row_flaws, column_flaws) for _ in check(demand.histogram, demand, path))
    total = sum(share for row in demand.histogram for share in row)
    if not misshapen and abs(total - 1) > HISTOGRAM_TOLERANCE:
        yield Flaw(path, f"adds up to {total:g}", "shares add up to 1: divide each by the sum of all")


def _type_flaws(service: ModelService) -> Iterator[Flaw]:
    yield from repeat_flaws(service.spec.gpu_types, ("spec", "gpuTypes"))


def _container_flaws(service: ModelService) -> Iterator[Flaw]:
    if service.spec.template is not None:
        names = tuple(each.name for each in service.spec.template.spec.containers)
        yield from repeat_flaws(names, ("spec", "template", "spec", "containers"))


RULES = (
    fits_label(SERVICE_LABEL),
    unchanging("spec", "model", remedy="make another service and lead its users there"),
    rising(("spec", "demand", "inputTokens"), _edges("input_tokens")),
    rising(("spec", "demand", "outputTokens"), _edges("output_tokens")),
    Rule(
        ("spec", "demand"),
        "self.histogram.size() == self.inputTokens.size()",
        "histogram has one row per edge of inputTokens",
        _of_demand(lambda demand, path: row_flaws(demand.histogram, demand, path)),
    ),
    Rule(
        ("spec", "demand"),
        "self.histogram.all(row, row.size() == self.outputTokens.size())",
        "every row of histogram has one number per edge of outputTokens",
        _of_demand(lambda demand, path: column_flaws(demand.histogram, demand, path)),
    ),
    Rule(
        ("spec", "demand", "histogram"),
        f"self.map(row, row.sum()).sum() >= {1 - HISTOGRAM_TOLERANCE} && "
        f"self.map(row, row.sum()).sum() <= {1 + HISTOGRAM_TOLERANCE}",
        "shares add up to 1: divide each by the sum of all",
        _of_demand(_sum_flaws),
    ),
)

SETS = (_type_flaws, _container_flaws)
"""What the types of the lists see to on the API server."""


def status_from(before: Mapping[str, Any]) -> ModelServiceStatus:
    """The status that stands there; one that cannot be read, because somebody else wrote it, is made anew."""
    try:
        return ModelServiceStatus.model_validate(before)
    except ValidationError:
        return ModelServiceStatus()


KIND = Kind(
    name="ModelService",
    model=ModelService,
    plural="modelservices",
    short_names=("msvc",),
    is_namespaced=True,
    columns=(
        Column("Model", ".spec.model", "string", "The model that is served."),
        Column("Wanted", ".status.wantedInstances", "integer", "Instances that are asked for."),
        Column("Running", ".status.runningInstances", "integer", "Instances that run."),
        Column("$/h", ".status.costPerHour", "number", "Dollars per hour of the instances asked for."),
        condition("Ready", "Whether all instances run as the last plan wants them."),
        Column("Mix", ".status.replicas", "string", "Instances asked for, by GPUType.", is_wide=True),
        Column("Gap", ".status.gap", "number", "How far the cost may be from the least, share.", is_wide=True),
        reason("Ready"),
        AGE,
    ),
    rules=RULES,
    checks=SETS,
    watched_as="services",
)
