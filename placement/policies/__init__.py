"""Packing policies by name."""

from collections.abc import Callable

from cluster.errors import ConfigError, Mistake
from placement.engine.policy import Knowledge, Policy
from placement.policies.bid_price import BidPrice
from placement.policies.fgd import Fgd, Fragmentation, typical_pods
from placement.policies.published import BestFit
from placement.prices.classes import FleetKinds, kinds_of, shares_of

POLICIES: dict[str, Callable[[Knowledge], Policy]] = {
    "bestfit": lambda _: BestFit(),
    "fgd": lambda known: Fgd(Fragmentation(typical_pods(known.expected or known.present), known.fleet.gpu_type_names)),
    "tonnage": lambda known: BidPrice(
        _kinds(known), shares_of(known.expected) if known.expected else None, seed=known.seed, present=known.present
    ),
    "tonnage-learning": lambda known: BidPrice(_kinds(known), seed=known.seed, present=known.present),
}

"""By name; a benchmark adds its rivals."""


def _kinds(known: Knowledge) -> FleetKinds:
    return kinds_of(known.fleet.nodes, known.fleet.gpu_type_names)


def policy_named(name: str, known: Knowledge) -> Policy:
    """New policy of that name. Raises ConfigError for an unknown name."""
    if name not in POLICIES:
        raise ConfigError(Mistake(f"policy {name!r}", "there is no such policy", f"choose from {', '.join(POLICIES)}"))
    return POLICIES[name](known)
