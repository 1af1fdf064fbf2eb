"""The packing policies by name."""

from collections.abc import Callable, Mapping

from cluster.errors import ConfigError, Mistake
from placement.policies.best_fit import BestFit
from placement.policy import Knowledge, Policy

POLICIES: Mapping[str, Callable[[Knowledge], Policy]] = {
    "bestfit": lambda _: BestFit(),
}


def policy_named(name: str, knowledge: Knowledge) -> Policy:
    """A fresh policy. Raises ConfigError for a name that is none."""
    if name not in POLICIES:
        raise ConfigError(Mistake(f"policy {name!r}", "there is no such policy", f"choose from {', '.join(POLICIES)}"))
    return POLICIES[name](knowledge)
