"""ModelProfile: what one instance of a model sustains on one GPU type per request length and SLO, measured or not."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from cluster.workloads import MAX_GPUS_PER_NODE
from controller.api.conditions import ObservedStatus
from controller.api.fields import Duration, Fraction, ListOf, NumberFromZero, ObjectName, OwnKind, Strict
from controller.api.kind import ACCEPTED, AGE, Kind, PrinterColumn
from controller.api.rule import Flaw, Flaws, Path, Rule, column_flaws, rising, row_flaws, unchanging

Edge = Annotated[int, Field(ge=1, le=100_000_000)]
Edges = Annotated[ListOf[Edge], Field(min_length=1, max_length=64)]
Row = Annotated[ListOf[NumberFromZero], Field(min_length=1, max_length=64)]
Matrix = Annotated[ListOf[Row], Field(min_length=1, max_length=64)]


class Grid(Strict):
    """Buckets of request lengths. Each edge is the largest length in its bucket."""

    input_tokens: Edges = Field(description="Upper edges of the input length buckets, tokens, strictly rising.")
    output_tokens: Edges = Field(description="Upper edges of the output length buckets, tokens, strictly rising.")


class LatencySlo(Strict):
    """Service level objective (SLO)."""

    tpot: Duration = Field(description="Upper bound of a request's mean time per output token (`40ms`).")


class ThroughputTable(Strict):
    """Measured throughput under one SLO."""

    slo: LatencySlo = Field(description="SLO that was met during the measurement.")
    requests_per_second: Matrix = Field(
        description=(
            "Requests per second that one instance sustains when it serves only that bucket; rows follow "
            "grid.inputTokens, columns grid.outputTokens; 0: it cannot serve such requests within the SLO."
        )
    )
    decoded_per_second: Matrix | None = Field(
        default=None,
        description="The same where prefill is done by other instances; without it, the model's phases stay together.",
    )
    watts: NumberFromZero | None = Field(
        default=None, description="Power of all GPUs of the instance at that throughput, on average over the buckets."
    )


class ModelProfileSpec(Strict):
    model: str = Field(min_length=1, max_length=253, description="Name of the measured model.")
    gpu_type: ObjectName = Field(description="Name of the GPUType it was measured on.")
    gpus_per_instance: int = Field(
        default=1, ge=1, le=MAX_GPUS_PER_NODE, description="GPUs of one instance, all on one node."
    )
    grid: Grid = Field(description="Buckets of request lengths for all tables below.")
    throughput: ListOf[ThroughputTable] = Field(min_length=1, max_length=32, description="One table per measured SLO.")
    prefill: ListOf[Duration] = Field(
        default=(),
        max_length=64,
        description="Time of the prefill of one prompt, for each edge of grid.inputTokens; needed where a service has "
        "an SLO on the time to first token, and for phases apart.",
    )
    cache_bytes_per_token: NumberFromZero | None = Field(
        default=None, description="Cache of one token, bytes: what moves from prefill to decode."
    )
    cache_tokens: NumberFromZero | None = Field(
        default=None, description="Tokens whose cache fits into the instance's memory beside the weights."
    )
    origin: Literal["measured", "estimated", "refined"] = Field(
        default="measured",
        description="estimated: by a roofline (`tonnage profile estimate`); refined: that, with observed requests.",
    )
    error: Fraction | None = Field(
        default=None, description="Median relative error that is to be expected of an estimate."
    )


class ModelProfile(OwnKind):
    """Measured throughput of a model on a GPU type. Not namespaced."""

    kind: Literal["ModelProfile"]
    spec: ModelProfileSpec = Field(description="Measured throughput, the model and the GPU type.")
    status: ObservedStatus = Field(default=ObservedStatus(), description="Written by Tonnage.")


def _each_table(check: Callable[[Sequence[Sequence[float]], Grid, Path], Iterable[Flaw]]) -> Flaws:
    def flaws(profile: ModelProfile) -> Iterator[Flaw]:
        for n, table in enumerate(profile.spec.throughput):
            path = ("spec", "throughput", n)
            yield from check(table.requests_per_second, profile.spec.grid, (*path, "requestsPerSecond"))
            if table.decoded_per_second is not None:
                yield from check(table.decoded_per_second, profile.spec.grid, (*path, "decodedPerSecond"))

    return flaws


def _slo_flaws(profile: ModelProfile) -> Iterator[Flaw]:
    seen = set()
    for n, table in enumerate(profile.spec.throughput):
        if table.slo.tpot in seen:
            path = ("spec", "throughput", n, "slo", "tpot")
            yield Flaw(path, "occurs twice in this profile", "keep one table per SLO")
        seen.add(table.slo.tpot)


RULES = (
    unchanging("spec", "model", remedy="create another profile, because a measurement belongs to one model"),
    unchanging("spec", "gpuType", remedy="create another profile, because a measurement belongs to one GPU type"),
    rising("spec", "grid", "inputTokens"),
    rising("spec", "grid", "outputTokens"),
    Rule(
        ("spec",),
        "self.throughput.all(table, table.requestsPerSecond.size() == self.grid.inputTokens.size() && "
        "(!has(table.decodedPerSecond) || table.decodedPerSecond.size() == self.grid.inputTokens.size()))",
        "every table of throughput has one row per edge of grid.inputTokens",
        flaws=_each_table(lambda rows, grid, path: row_flaws(rows, grid.input_tokens, path)),
    ),
    Rule(
        ("spec",),
        "self.throughput.all(table, table.requestsPerSecond.all(row, row.size() == self.grid.outputTokens.size()) && "
        "(!has(table.decodedPerSecond) || "
        "table.decodedPerSecond.all(row, row.size() == self.grid.outputTokens.size())))",
        "every row of throughput has one number per edge of grid.outputTokens",
        flaws=_each_table(lambda rows, grid, path: column_flaws(rows, grid.output_tokens, path)),
    ),
    Rule(
        ("spec",),
        "!has(self.prefill) || self.prefill.size() in [0, self.grid.inputTokens.size()]",
        "prefill has one duration per edge of grid.inputTokens; leave it out where it was not measured",
        lambda spec: len(spec.prefill) in (0, len(spec.grid.input_tokens)),
    ),
    Rule(
        ("spec", "throughput"),
        "self.all(table, self.exists_one(other, duration(other.slo.tpot) == duration(table.slo.tpot)))",
        "two tables have the same slo.tpot; keep one table per SLO",
        flaws=_slo_flaws,
    ),
    Rule(
        ("spec", "throughput", "[]", "requestsPerSecond"),
        "self.exists(row, row.exists(rate, rate > 0.0))",
        "is zero in every bucket; leave the table out when nothing can be served within this SLO",
        lambda rows: any(rate for row in rows for rate in row),
    ),
)

KIND = Kind(
    model=ModelProfile,
    plural="modelprofiles",
    short_names=("mprof",),
    is_namespaced=False,
    columns=(
        PrinterColumn("Model", ".spec.model", "string", "Measured model."),
        PrinterColumn("GPU type", ".spec.gpuType", "string", "GPUType it was measured on."),
        PrinterColumn("GPUs", ".spec.gpusPerInstance", "integer", "GPUs of one instance."),
        PrinterColumn("Origin", ".spec.origin", "string", "Measured, estimated or refined."),
        ACCEPTED,
        AGE,
    ),
    rules=RULES,
    watched_as="profiles",
)
