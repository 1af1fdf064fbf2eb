"""The packing policies by name."""

from collections.abc import Callable, Mapping

from cluster.errors import ConfigError, Mistake
from placement.fragmentation import Fragmentation, typical_pods
from placement.policies.best_fit import BestFit
from placement.policies.clustering import Clustering
from placement.policies.dot_product import DotProduct
from placement.policies.fgd import Fgd
from placement.policies.packing import Packing
from placement.policies.random import Random
from placement.policy import Knowledge, Policy

POLICIES: Mapping[str, Callable[[Knowledge], Policy]] = {
    "random": lambda known: Random(known.seed),
    "dotprod": lambda _: DotProduct(),
    "clustering": lambda known: Clustering(len(known.fleet.nodes)),
    "packing": lambda _: Packing(),
    "bestfit": lambda _: BestFit(),
    "fgd": lambda known: Fgd(Fragmentation(typical_pods(known.expected), known.fleet.gpu_type_names)),
}


def policy_named(name: str, known: Knowledge) -> Policy:
    """A fresh policy. Raises ConfigError for a name that is none."""
    if name not in POLICIES:
        raise ConfigError(Mistake(f"policy {name!r}", "there is no such policy", f"choose from {', '.join(POLICIES)}"))
    return POLICIES[name](known)
