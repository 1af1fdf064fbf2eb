"""Actions: everything that Tonnage may do to a cluster, as a closed union."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bind:
    """Start a pending pod on a node, on these devices."""

    pod: str
    node: str
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Evict:
    """Stop a pod where it runs; its owner makes a new one, which is pending."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class Move:
    """Stop a pod on one node and start it on another."""

    pod: str
    from_node: str
    node: str
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """Have so many instances of a service on each GPU type; types that are not named stay as they are."""

    service: str
    instances: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SetPowerLease:
    """Allow the devices of a node so many watts each, for so long; then its agent falls back to the safe floor."""

    node: str
    caps_w: Mapping[str, float]
    """Device (UUID) → highest draw."""
    sequence: int
    """Rises with each lease of this node; an agent refuses an older one."""
    epoch: int = 0
    """The term of the controller that grants it."""
    for_s: float = 10.0


Action = Bind | Evict | Move | Scale | SetPowerLease
