"""ModelProfile: what one instance of a model sustains on one GPU type, per request length and promise."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from cluster.hardware import MAX_GPUS_PER_NODE
from controller.api.conditions import ObservedStatus
from controller.api.fields import Duration, ListOf, NumberFromZero, ObjectName, Strict
from controller.api.flaw import Flaw, matrix_flaws, rising_flaws
from controller.api.metadata import ApiVersion, OwnMeta

Edge = Annotated[int, Field(ge=1, le=100_000_000)]
Edges = Annotated[ListOf[Edge], Field(min_length=1, max_length=64)]
Matrix = Annotated[ListOf[ListOf[NumberFromZero]], Field(max_length=64)]


class Grid(Strict):
    """Buckets of request lengths. Each edge is the longest length that its bucket holds."""

    input_tokens: Edges = Field(description="Upper edges of the prompt lengths, tokens, strictly rising.")
    output_tokens: Edges = Field(description="Upper edges of the answer lengths, tokens, strictly rising.")


class Slo(Strict):
    """The promise of a service."""

    tpot: Duration = Field(description="Mean time per output token of a request, at most (`40ms`).")


class ThroughputTable(Strict):
    """What was measured while one promise was kept."""

    slo: Slo = Field(description="The promise that was kept while this was measured.")
    requests_per_second: Matrix = Field(
        description=(
            "Requests per second of each bucket that one instance sustains alone; rows follow grid.inputTokens, "
            "columns grid.outputTokens; 0: it cannot serve such requests within the promise."
        )
    )


class ModelProfileSpec(Strict):
    model: str = Field(min_length=1, max_length=253, description="The model that was measured.")
    gpu_type: ObjectName = Field(description="Name of the GPUType that it was measured on.")
    gpus_per_instance: int = Field(
        default=1, ge=1, le=MAX_GPUS_PER_NODE, description="Devices of one node that one instance takes."
    )
    grid: Grid = Field(description="Buckets of request lengths that all tables below use.")
    throughput: ListOf[ThroughputTable] = Field(
        min_length=1, max_length=32, description="One table per promise that was measured."
    )


class ModelProfileStatus(ObservedStatus):
    """What Tonnage says of it: Accepted, or why not."""


class ModelProfile(Strict):
    """Throughput of a model on a GPU type. Not namespaced."""

    api_version: ApiVersion
    kind: Literal["ModelProfile"]
    metadata: OwnMeta
    spec: ModelProfileSpec
    status: ModelProfileStatus = Field(default=ModelProfileStatus(), description="Written by Tonnage.")


def flaws(profile: ModelProfile) -> Iterator[Flaw]:
    """What is wrong with a profile whose fields are right one by one."""
    spec, seen = profile.spec, set()
    yield from rising_flaws(spec.grid.input_tokens, ("spec", "grid", "inputTokens"))
    yield from rising_flaws(spec.grid.output_tokens, ("spec", "grid", "outputTokens"))
    for n, table in enumerate(spec.throughput):
        here = ("spec", "throughput", n)
        yield from matrix_flaws(table.requests_per_second, spec.grid, (*here, "requestsPerSecond"))
        if table.slo.tpot in seen:
            yield Flaw((*here, "slo", "tpot"), "occurs twice in this profile", "keep one table per promise")
        seen.add(table.slo.tpot)
        if not any(rate for row in table.requests_per_second for rate in row):
            yield Flaw(
                (*here, "requestsPerSecond"),
                "is zero in every bucket",
                "leave the table out when nothing can be served within this promise",
            )
