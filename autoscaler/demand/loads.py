"""Offered load of one service at one instant, from the quantities that its server reports."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from autoscaler.demand.presets import Preset, Quantity

Role = Literal["load", "requests", "inputTokens", "outputTokens", "queue"]
"""What a source measures of a target. load: offered load in the policy's own unit, the same as `requests` where a
preset measures it. requests: requests per second. inputTokens, outputTokens: tokens per second. queue: waiting
requests."""

SATURATED = 0.9
"""Used fraction of the KV cache from which a server counts as saturated. vLLM preempts requests near 1; llm-d's
autoscaler calls a replica saturated at 0.8."""


@dataclass(frozen=True, slots=True)
class Load:
    """Measured values of one instant."""

    values: Mapping[Role, float]
    """Value by role: requests and tokens per second, waiting requests. A role that is missing was not measured."""
    is_censored: bool
    """Whether the rates are lower bounds of what was offered."""


def quantities(preset: Preset, roles: Iterable[Role]) -> tuple[Quantity, ...]:
    """Quantities that these roles need, and those that show whether they are censored."""
    wanted: list[Quantity] = [quantity for role in roles for quantity in _NEEDED[role]]
    if not preset.is_offered:
        wanted += ["queue", "saturation"]
    return tuple(dict.fromkeys(quantity for quantity in wanted if quantity in preset.expressions))


def load_from(preset: Preset, roles: Iterable[Role], measured: Mapping[Quantity, float]) -> Load:
    """Values of these roles. What is not finite was not measured: missing is not zero."""
    known = {quantity: value for quantity, value in measured.items() if math.isfinite(value) and value >= 0}
    values = {role: value for role in roles if (value := _value(role, known)) is not None}
    is_full = known.get("queue", 0.0) > 0 or known.get("saturation", 0.0) >= SATURATED
    return Load(values, is_censored=is_full and not preset.is_offered)


_NEEDED: Mapping[Role, tuple[Quantity, ...]] = {
    "load": ("requests",),
    "requests": ("requests",),
    "inputTokens": ("requests", "input_mean"),
    "outputTokens": ("requests", "output_mean"),
    "queue": ("queue",),
}


def _value(role: Role, known: Mapping[Quantity, float]) -> float | None:
    if role == "queue":
        return known.get("queue")
    requests = known.get("requests")
    if requests is None or role in ("load", "requests"):
        return requests
    # Tokens of the requests that came, not of those that ended: the mean length changes slower than the rate.
    mean = known.get("input_mean" if role == "inputTokens" else "output_mean")
    if mean is None:
        return 0.0 if requests == 0 else None
    return requests * mean
