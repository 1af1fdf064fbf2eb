"""GPU types: product name, memory, and price of an hour."""

from dataclasses import dataclass

WHOLE_GPU_MILLI = 1000
"""Thousandths in a GPU, the unit of sharing in the openb trace and in most GPU-sharing device plugins."""

MAX_GPUS_PER_NODE = 16
"""GPUs of the widest common server (HGX with 16 devices). The ledger's matrix is only as wide as the fleet needs."""


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

    def price(self, *, spot: bool) -> float:
        """Dollars per device and hour; the on-demand price where there is no spot offer."""
        if spot and self.spot_price_per_hour is not None:
            return self.spot_price_per_hour
        return self.price_per_hour
