"""Pools of a simulated row: A100 servers of both classes that serve chat."""

from typing import Any

from simulator.power.machine import DGX_A100
from simulator.power.requests import CLASSES, RateCurve, ServerPool, made_up_rates


def pools_of(servers: tuple[int, int] = (1, 1), curve: RateCurve | None = None, **more: Any) -> tuple[ServerPool, ...]:
    """Servers of the low and the high class."""
    curve = curve or made_up_rates(1)
    return tuple(ServerPool(name, n, servers[n], DGX_A100, curve, **more) for n, name in enumerate(CLASSES))
