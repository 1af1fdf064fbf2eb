"""Demand: how many requests arrive per second, and how long their prompts and answers are."""

from dataclasses import dataclass

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class LengthGrid:
    """Buckets of request lengths: bucket (i, j) holds prompts up to input_tokens[i] and answers up to output_tokens[j].

    Both edges rise strictly. A request longer than the last edge belongs to no bucket.
    """

    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.input_tokens), len(self.output_tokens))

    def label(self, i: int, j: int) -> str:
        """How people read bucket (i, j): `input ≤ 500, output ≤ 100 tokens`."""
        return f"input ≤ {self.input_tokens[i]}, output ≤ {self.output_tokens[j]} tokens"


@dataclass(frozen=True, slots=True)
class Slo:
    """The latency a service promises; a throughput profile is valid for one such promise."""

    tpot_s: float
    """Mean time per output token of a request, seconds."""

    @property
    def label(self) -> str:
        return f"{self.tpot_s * 1000:g}ms"


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What arrives at a service."""

    rate_per_s: float
    grid: LengthGrid
    share: FloatArray
    """Share of the requests in each bucket, shape (inputs, outputs), adds up to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class ThroughputProfile:
    """What one instance of a model sustains on one GPU type while it keeps an SLO.

    Source of the form: Mélange (arXiv 2404.14527), section 4: requests per second per bucket; 0 = cannot.
    """

    model: str
    gpu_type: str
    slo: Slo
    grid: LengthGrid
    requests_per_s: FloatArray
    """Shape (inputs, outputs). Zero where the bucket cannot be served within the SLO."""
    gpus_per_instance: int = 1
