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


Action = Bind | Evict | Move | Scale
