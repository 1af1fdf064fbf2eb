"""ModelService: a model served behind an endpoint: its demand, its SLO, and resources per instance besides GPUs."""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from cluster.workloads import MAX_GPUS_PER_NODE
from controller.api import fields
from controller.api.conditions import ObservedStatus
from controller.api.kind import AGE, Kind, PrinterColumn, condition, reason
from controller.api.labels import SERVICE_LABEL
from controller.api.model_profile import Edges, LatencySlo, Matrix
from controller.api.rule import Flaw, Flaws, Path, Rule, column_flaws, fits_label, rising, row_flaws, unchanging

HISTOGRAM_TOLERANCE = 1e-3
"""Allowed difference of a histogram's sum from 1: 60 fractions, each rounded to four places, are off by at most 0.003
in theory and by 0.0002 in practice. Sums within the tolerance are scaled to exactly 1."""


ModelName = Annotated[str, Field(min_length=1, max_length=253)]


class BatchDemand(fields.Strict):
    """Requests that wait for cheap hours until a deadline. They are answered where power costs the least."""

    requests: fields.PositiveNumber = Field(description="Number of all requests.")
    begin: fields.Instant | None = Field(default=None, description="When the first may be answered; default: now.")
    deadline: fields.Instant = Field(description="When the last is to be answered.")
    most_per_second: fields.PositiveNumber = Field(
        description="Highest rate at which clients send them, requests per second; fewer where GPUs are short."
    )


class ServiceDemand(fields.Strict):
    """Request load of the service."""

    requests_per_second: fields.NumberFromZero = Field(
        description="Requests per second that wait for nothing, all lengths together."
    )
    batch: BatchDemand | None = Field(
        default=None, description="Requests that may wait; what a ScalingPolicy measures is without them."
    )
    input_tokens: Edges = Field(description="Upper edges of the input length buckets, tokens, strictly rising.")
    output_tokens: Edges = Field(description="Upper edges of the output length buckets, tokens, strictly rising.")
    histogram: Matrix = Field(
        description="Fraction of the requests in each bucket; rows follow inputTokens, columns outputTokens; sums to 1."
    )


class ServiceObjective(fields.Strict):
    """What the mix is to have little of, each with its value in dollars. Needs `watts` in the profiles."""

    dollars: fields.NumberFromZero = Field(default=1.0, description="Value of a dollar of the instances' price.")
    kwh: fields.NumberFromZero = Field(
        default=0.0, alias="kWh", description="Value of a kWh that instances draw, besides what their price has of it."
    )
    kg_co2: fields.NumberFromZero = Field(
        default=0.0, alias="kgCO2", description="Value of a kg of CO2, by the GPUTypes' powerPrices."
    )


class InstanceResources(fields.Strict):
    """Resources of one instance on its node, besides GPUs."""

    cpu: fields.QuantityFromZero = Field(default=Decimal(0), description="CPU of one instance, cores (`8`, `500m`).")
    memory: fields.QuantityFromZero = Field(
        default=Decimal(0), description="Main memory of one instance, bytes (`64Gi`)."
    )


class TemplateMeta(fields.Strict):
    """Labels and annotations of an instance's pods, besides those that Tonnage sets."""

    labels: Annotated[dict[str, str], Field(max_length=64)] = Field(default={}, description="Labels of the pods.")
    annotations: Annotated[dict[str, str], Field(max_length=64)] = Field(
        default={}, description="Annotations of the pods."
    )


class TemplateContainer(fields.Open):
    """Container of core/v1. The pod's first container gets the GPUs."""

    name: fields.DnsLabel = Field(description="Name of the container, unique in the pod.")


class TemplateSpec(fields.Open):
    """Pod spec of core/v1. Planning of the mix reads its node selector, affinity and tolerations
    (controller/snapshot/nodes.py); the rest is used only to create the pods."""

    containers: Annotated[
        fields.ListOf[TemplateContainer], Field(min_length=1, max_length=64), fields.keyed_by("name")
    ] = Field(description="Containers of core/v1; the first one gets the GPUs.")


class TemplateVariant(fields.Strict):
    """What some instances have instead, in their first container."""

    phase: Literal["cache", "decode", "prefill"] | None = Field(
        default=None, description="Pool that has it; default: all."
    )
    gpu_type: fields.ObjectName | None = Field(default=None, description="GPUType that has it; default: all.")
    model: ModelName | None = Field(default=None, description="Model that has it, of several; default: all.")
    image: str | None = Field(default=None, min_length=1, max_length=1024, description="Image.")
    args: fields.ListOf[str] = Field(default=(), max_length=256, description="More arguments.")
    env: Annotated[dict[str, str], Field(max_length=64)] = Field(default={}, description="Environment variables.")


class InstanceTemplate(fields.Strict):
    """Pod template of one instance."""

    metadata: TemplateMeta = Field(
        default=TemplateMeta(), description="Labels and annotations of the pods, as in a Deployment."
    )
    spec: TemplateSpec = Field(
        description=(
            "Pod spec of core/v1. Its nodeSelector, required node affinity and tolerations constrain the mix: only "
            "GPUs of nodes that they allow are counted."
        )
    )
    variants: fields.ListOf[TemplateVariant] = Field(
        default=(),
        max_length=64,
        description="Changes by phase and GPUType; all that apply do, in order.",
    )


class ServiceSlo(LatencySlo):
    """Service level objective (SLO) of a service."""

    ttft: fields.Duration | None = Field(
        default=None, description="Upper bound of the time to the first token; profiles need `prefill` for it."
    )
    share: Annotated[float, Field(ge=0.5, le=0.9999)] | None = Field(
        default=None, description="Fraction of the requests that are to meet it; default: 0.995."
    )


class PhasePool(fields.Strict):
    """Instances for one phase of all requests."""

    gpu_types: Annotated[fields.ListOf[fields.ObjectName], fields.as_set()] = Field(
        default=(), max_length=64, description="GPUTypes that the pool may use; empty: those of the service."
    )


class Phases(fields.Strict):
    """Pools for the phases of requests. The cache of each prompt moves from one to the other over the network."""

    prefill: PhasePool = Field(default=PhasePool(), description="Instances that answer the first token.")
    decode: PhasePool = Field(default=PhasePool(), description="Instances that answer all others.")


class CacheHits(fields.Strict):
    """How much of the prompts a cache finds that holds all prompts of some time."""

    within: fields.Duration = Field(description="Time of the demand whose prompts' cache the pool holds.")
    share: fields.Fraction = Field(description="Fraction of the prompts' tokens that are then found in it.")


class CachePool(PhasePool):
    """Pool of main memory for the cache of prompts (KV), on nodes of the GPUTypes that name a network. What is found in
    it needs no prefill."""

    memory: fields.PositiveQuantity = Field(
        description="Most memory of the pool, bytes (`1Ti`); it has as much of that as saves more than it costs."
    )
    instance_memory: fields.PositiveQuantity = Field(
        default=Decimal(2**36), description="Memory of each of its instances, bytes."
    )
    price_per_gib_hour: fields.NumberFromZero = Field(
        default=0.004,
        alias="pricePerGiBHour",
        description="Dollars per hour of a GiB; default: what clouds take for it in on-demand machines.",
    )
    hits: fields.ListOf[CacheHits] = Field(
        default=(), max_length=64, description="As measured; default: those of a published chat service."
    )


Port = Annotated[int, Field(ge=1, le=65_535)]


class ServiceRoutes(fields.Strict):
    """HTTPRoute (Gateway API) of the service's name, which Tonnage keeps in step with the mix: one weight per instance
    type. Needs `routes` in the chart."""

    gateway: str = Field(
        min_length=1, max_length=507, description="Gateway of the route; `NAMESPACE/NAME` in another namespace."
    )
    hostnames: fields.ListOf[fields.ObjectName] = Field(default=(), max_length=16, description="Hosts of the route.")
    port: Port = Field(default=8000, description="Port of the instances, or of their Services.")
    picker: str = Field(
        default="",
        max_length=63,
        description="Service of an endpoint picker, at port 9002: requests go to an InferencePool of each type, which "
        "Tonnage writes. Without it, they go to your Services, named as the Deployments.",
    )


class ModelConfig(fields.Open):
    """Content of a Hugging Face `config.json`."""


class ModelFacts(fields.Strict):
    """What is known of a model that has no ModelProfile. Its throughput is estimated from that."""

    billion_parameters: fields.PositiveNumber | None = Field(
        default=None, description="Size, billions of parameters; default: that in the model's name, else 70."
    )
    config: ModelConfig | None = Field(default=None, description="Its `config.json`, instead of the size.")
    precision: Literal["bf16", "fp16", "fp8", "int8", "int4", "mxfp4"] | None = Field(
        default=None, description="Precision of the weights; default: that of the config, else bf16."
    )


class ModelQuality(fields.Strict):
    """Quality of the answers where several models may give them, by any measure from 0 to 1."""

    of: Annotated[dict[str, fields.Fraction], Field(max_length=17)] = Field(description="Quality of each model.")
    mean: fields.Fraction = Field(
        description="Least mean over the requests of each length; none is answered by a model more than one step below."
    )


class ModelServiceSpec(fields.Strict):
    model: ModelName = Field(
        description="Name of the served model, by which its ModelProfiles are found. One without any is estimated."
    )
    model_facts: ModelFacts | None = Field(default=None, description="Facts for that estimate.")
    models: Annotated[fields.ListOf[ModelName], fields.as_set()] = Field(
        default=(),
        max_length=16,
        description="Models that may answer as well, each on instances of its own, whichever cost the least; pods then "
        "have the label `tonnage.dev/model` and the variable `TONNAGE_MODEL`.",
    )
    quality: ModelQuality | None = Field(default=None, description="Default: all models are equally good.")
    adapters: Annotated[fields.ListOf[ModelName], fields.as_set()] = Field(
        default=(),
        max_length=256,
        description="Adapters (LoRA) that each instance serves besides its base model, as `NAME` or `NAME=SOURCE`: "
        "environment variable `TONNAGE_ADAPTERS`, and one argument each in place of `$(TONNAGE_ADAPTERS)`.",
    )
    adapter_memory: fields.QuantityFromZero = Field(
        default=Decimal(2**29),
        description="GPU memory of one adapter, which the cache then lacks where profiles have `cacheTokens`.",
    )
    slo: ServiceSlo = Field(description="SLO of the service.")
    objective: ServiceObjective | None = Field(default=None, description="Default: dollars alone.")
    phases: Phases | None = Field(
        default=None,
        description="Prefill and decode may be apart, on instances of their own, where that costs less than together "
        "and their GPUTypes name a network; pods then have the label `tonnage.dev/phase`.",
    )
    cache: CachePool | None = Field(
        default=None,
        description="Default: no pool. Its pods are as the template's, with the label `tonnage.dev/phase`, with memory "
        "alone, `TONNAGE_CACHE_BYTES`, and no command and arguments but those of variants.",
    )
    demand: ServiceDemand | None = Field(
        default=None, description="Request load; leave it out while it is unmeasured. Unknown is never treated as zero."
    )
    gpu_types: Annotated[fields.ListOf[fields.ObjectName], fields.as_set()] = Field(
        default=(),
        max_length=64,
        description="GPUTypes the service may use; empty: all that have a profile of the model.",
    )
    spot: bool = Field(
        default=False,
        description=(
            "Whether instances may run on spot nodes, at the spot price, besides on-demand nodes; false: on on-demand "
            "nodes alone. Without nodes: whether GPUs cost their spot price."
        ),
    )
    headroom: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description=(
            "Fraction of every instance's throughput kept free for queueing, 0 to below 1; default: computed from the "
            "burstiness of this demand."
        ),
    )
    split: Literal["sliced", "continuous"] = Field(
        default="sliced",
        description="Whether a bucket's load is split over GPU types in sliceFactor equal parts or in any proportion.",
    )
    slice_factor: int = Field(
        default=8, ge=1, le=1000, description="Number of equal parts of a bucket's load when split is sliced."
    )
    instance: InstanceResources = Field(
        default=InstanceResources(), description="Resources of one instance on its node, besides GPUs."
    )
    template: InstanceTemplate | None = Field(
        default=None,
        description=(
            "Pod template of one instance, as in a Deployment; Tonnage adds labels, GPUs and placement. Without it the "
            "service is only planned, and its instances are run by other means."
        ),
    )
    routes: ServiceRoutes | None = Field(default=None, description="Default: Tonnage writes no routes.")
    priority: fields.Priority = Field(default=0, description="Priority of the instances, as in a pod's spec.priority.")

    @property
    def all_models(self) -> tuple[str, ...]:
        """Models any of which may answer a request."""
        return tuple(dict.fromkeys((self.model, *self.models)))


Count = Annotated[int, Field(ge=0)]
PerInstanceType = Annotated[dict[str, Count], Field(max_length=64)]


class RoutingWeights(fields.StatusPart):
    """Fraction of each bucket's requests that goes to the instances of one type."""

    phase: str = Field(
        default="all",
        max_length=63,
        description="Pool of the instances: `prefill`, `decode`, a model of several, or `all` of whole requests.",
    )
    gpu_type: fields.ObjectName = Field(description="Name of the GPUType.")
    gpus_per_instance: int = Field(default=1, ge=1, le=MAX_GPUS_PER_NODE, description="GPUs of one instance.")
    capacity_type: Literal["on-demand", "spot"] = Field(
        default="on-demand", description="Capacity type of the instances' nodes."
    )
    share: Annotated[
        fields.ListOf[Annotated[fields.ListOf[fields.Fraction], Field(max_length=64)]], Field(max_length=64)
    ] = Field(
        description="Fraction of the requests of each bucket, 0 to 1; rows follow inputTokens, columns outputTokens."
    )


class RoutingStatus(fields.StatusPart):
    """Routing weights of requests over instance types. The mix meets its SLO only if the gateway uses them."""

    input_tokens: Edges = Field(description="Upper edges of the input length buckets, tokens.")
    output_tokens: Edges = Field(description="Upper edges of the output length buckets, tokens.")
    weights: Annotated[
        fields.ListOf[RoutingWeights],
        Field(max_length=64),
        fields.keyed_by("phase", "gpuType", "gpusPerInstance", "capacityType"),
    ] = Field(
        default=(), description="One table per instance type; a phase's sum to 1 where a bucket has demand, else to 0."
    )


class BatchStatus(fields.StatusPart):
    """Progress of the requests that may wait."""

    done: fields.NumberFromZero = Field(description="Requests that the running instances had time for.")
    time: fields.Instant = Field(description="When that was counted.")
    deadline: fields.Instant | None = Field(default=None, description="Of what; another deadline is of other requests.")


class ModelServiceStatus(ObservedStatus):
    """State of the service. Conditions: Accepted, Planned (a mix exists), Ready (all instances run), Degraded,
    ProfileEstimated."""

    mix: PerInstanceType | None = Field(
        default=None,
        description="Planned instances per instance type, named as in replicas, also of a service without a template, "
        "whose instances are run by other means; absent: never planned.",
    )
    replicas: PerInstanceType | None = Field(
        default=None,
        description="Wanted instances per instance type: GPUType, `x` and GPUs per instance if not 1, `-spot` if "
        "on spot nodes, after `prefill/`, `decode/`, `cache/` or a model if in such a pool; absent: never planned.",
    )
    running: PerInstanceType | None = Field(default=None, description="Running instances per instance type.")
    wanted_instances: Count | None = Field(default=None, description="Wanted instances of all types.")
    running_instances: Count | None = Field(default=None, description="Running instances of all types.")
    last_scale_time: fields.Instant | None = Field(
        default=None, description="When replicas last changed; without a template, since the mix did."
    )
    cost_per_hour: fields.NumberFromZero | None = Field(
        default=None, description="Cost of the wanted instances, dollars per hour, with energy as objective has it."
    )
    joules_per_token: fields.NumberFromZero | None = Field(
        default=None,
        description="Draw of the running instances' GPUs, by their counters, over the output tokens of its demand.",
    )
    batch: BatchStatus | None = Field(default=None, description="Progress of the requests that may wait.")
    bound_per_hour: fields.NumberFromZero | None = Field(
        default=None, description="Proven lower bound on the cost of any mix, dollars per hour."
    )
    gap: fields.NumberFromZero | None = Field(
        default=None, description="(costPerHour - boundPerHour) / costPerHour; 0: proven to be the cheapest mix."
    )
    routing: RoutingStatus | None = Field(default=None, description="Routing weights of requests over instance types.")


class ModelService(fields.OwnKind):
    """Model served behind an endpoint."""

    kind: Literal["ModelService"]
    spec: ModelServiceSpec = Field(description="Served model, its demand and its SLO.")
    status: ModelServiceStatus = Field(default=ModelServiceStatus(), description="Written by Tonnage.")


def _of_demand(check: Callable[[ServiceDemand, Path], Iterable[Flaw]]) -> Flaws:
    def flaws(service: ModelService) -> Iterable[Flaw]:
        return check(service.spec.demand, ("spec", "demand", "histogram")) if service.spec.demand else ()

    return flaws


def _sum_flaws(demand: ServiceDemand, path: Path) -> Iterator[Flaw]:
    is_whole = len(demand.histogram) == len(demand.input_tokens)
    is_whole &= all(len(row) == len(demand.output_tokens) for row in demand.histogram)
    total = sum(share for row in demand.histogram for share in row)
    if is_whole and abs(total - 1) > HISTOGRAM_TOLERANCE:
        yield Flaw(path, f"adds up to {total:g}", "fractions should sum to 1: divide each by their sum")


RULES = (
    fits_label(SERVICE_LABEL),
    unchanging("spec", "model", remedy="create another service and move its users there"),
    rising("spec", "demand", "inputTokens"),
    rising("spec", "demand", "outputTokens"),
    Rule(
        ("spec", "demand"),
        "self.histogram.size() == self.inputTokens.size()",
        "histogram has one row per edge of inputTokens",
        flaws=_of_demand(lambda demand, path: row_flaws(demand.histogram, demand.input_tokens, path)),
    ),
    Rule(
        ("spec", "demand"),
        "self.histogram.all(row, row.size() == self.outputTokens.size())",
        "every row of histogram has one number per edge of outputTokens",
        flaws=_of_demand(lambda demand, path: column_flaws(demand.histogram, demand.output_tokens, path)),
    ),
    Rule(
        ("spec", "demand", "histogram"),
        f"self.map(row, row.sum()).sum() >= {1 - HISTOGRAM_TOLERANCE} && "
        f"self.map(row, row.sum()).sum() <= {1 + HISTOGRAM_TOLERANCE}",
        "fractions should sum to 1: divide each by their sum",
        flaws=_of_demand(_sum_flaws),
    ),
)


KIND = Kind(
    model=ModelService,
    plural="modelservices",
    short_names=("msvc",),
    is_namespaced=True,
    columns=(
        PrinterColumn("Model", ".spec.model", "string", "Served model."),
        PrinterColumn("Wanted", ".status.wantedInstances", "integer", "Wanted instances."),
        PrinterColumn("Running", ".status.runningInstances", "integer", "Running instances."),
        PrinterColumn("$/h", ".status.costPerHour", "number", "Cost of the wanted instances, dollars per hour."),
        condition("Ready", "Whether all instances run as planned."),
        PrinterColumn("J/token", ".status.joulesPerToken", "number", "Joules per output token.", is_wide=True),
        PrinterColumn("Mix", ".status.mix", "string", "Planned instances by instance type.", is_wide=True),
        PrinterColumn(
            "Gap", ".status.gap", "number", "Fraction by which the cost may exceed the minimum.", is_wide=True
        ),
        reason("Ready"),
        AGE,
    ),
    rules=RULES,
    watched_as="services",
)
