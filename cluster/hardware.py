"""GPU types: what a device is called, how much memory it has, and what an hour of it costs."""

from dataclasses import dataclass

WHOLE_GPU_MILLI = 1000
"""A GPU is divided into thousandths, as the openb trace and most GPU-sharing device plugins do."""

MAX_GPUS_PER_NODE = 16
"""The widest common server (HGX with 16 devices). The ledger's matrix is only as wide as the fleet needs."""


@dataclass(frozen=True, slots=True)
class GpuType:
    """One kind of GPU that a fleet has or could rent."""

    name: str
    """Matches the value of the node label that tells the product, e.g. `A100`."""
    memory_bytes: int
    price_per_hour: float
    """US dollars for one device for one hour, on demand (or amortised, for owned hardware)."""
    spot_price_per_hour: float | None = None
    inventory: int | None = None
    """How many devices may be used at most when no nodes are given; None: as many as money buys."""

    def price(self, *, spot: bool) -> float:
        """Dollars per device and hour; the on-demand price where there is no spot offer."""
        if spot and self.spot_price_per_hour is not None:
            return self.spot_price_per_hour
        return self.price_per_hour
