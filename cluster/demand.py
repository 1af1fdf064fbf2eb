"""Demand: the rate of requests per second, and the lengths of their prompts and outputs."""

from dataclasses import dataclass

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class LengthGrid:
    """Buckets of request lengths: bucket (i, j) has at most input_tokens[i] input and output_tokens[j] output tokens.

    Both edges increase strictly. A request longer than the last edge belongs to no bucket.
    """

    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.input_tokens), len(self.output_tokens))

    def label(self, i: int, j: int) -> str:
        """Label of bucket (i, j) for people: `input ≤ 500, output ≤ 100 tokens`."""
        return f"input ≤ {self.input_tokens[i]}, output ≤ {self.output_tokens[j]} tokens"


@dataclass(frozen=True, slots=True)
class Slo:
    """Latency SLO of a service; a throughput profile is valid for one SLO."""

    tpot_s: float
    """Mean time per output token of a request, seconds."""

    @property
    def label(self) -> str:
        return f"{self.tpot_s * 1000:g}ms"


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Requests that arrive at a service."""

    rate_per_s: float
    grid: LengthGrid
    share: FloatArray
    """Fraction of the requests in each bucket, shape (inputs, outputs), adds up to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedDemand:
    """Demand that a service is planned for instead of the one in its spec: a measured one, at a chosen quantile."""

    service: str
    """`namespace/name`."""
    demand: Demand
    start_share: float = 0.0
    """Cost of starting an instance, as a fraction of its price per hour: spread over the time until the demand is
    expected to be another one."""


@dataclass(frozen=True, slots=True, eq=False)
class ThroughputProfile:
    """Throughput that one instance of a model sustains on one GPU type within an SLO.

    Source of the form: Mélange (arXiv 2404.14527), section 4: requests per second per bucket; 0 = cannot.
    """

    model: str
    gpu_type: str
    slo: Slo
    grid: LengthGrid
    requests_per_s: FloatArray
    """Shape (inputs, outputs). Zero where the bucket cannot be served within the SLO."""
    gpus_per_instance: int = 1
