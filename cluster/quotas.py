"""Quotas of namespaces: what their pods may hold together, what one pod counts, and what is left for services."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class QuotaAsk:
    """What one pod counts in the quotas of its namespace, and by what they select pods."""

    amounts: Mapping[str, int]
    """By the names of resources in quotas, such as `requests.cpu` and `pods`. Thousandths of cores, else whole."""
    priority_class: str = ""
    is_terminating: bool = False
    """Whether it has a deadline (`activeDeadlineSeconds`)."""
    is_best_effort: bool = False
    """Whether it asks for neither CPU nor memory."""
    crosses_namespaces: bool = False
    """Whether its affinity to pods names other namespaces."""


@dataclass(frozen=True, slots=True)
class QuotaScope:
    """Condition on the pods that a quota counts, as core/v1 ScopedResourceSelectorRequirement."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def has(self, ask: QuotaAsk) -> bool:
        """Whether a pod meets it. Raises KeyError for a scope that is not understood."""
        return _IS_IN[self.name](ask, self)


def _has_class(ask: QuotaAsk, scope: QuotaScope) -> bool:
    found = ask.priority_class
    match scope.operator:
        case "In":
            return found in scope.values
        case "NotIn":
            return found not in scope.values
        case "DoesNotExist":
            return not found
    return bool(found)


_IS_IN: Mapping[str, Callable[[QuotaAsk, QuotaScope], bool]] = {
    "Terminating": lambda ask, _: ask.is_terminating,
    "NotTerminating": lambda ask, _: not ask.is_terminating,
    "BestEffort": lambda ask, _: ask.is_best_effort,
    "NotBestEffort": lambda ask, _: not ask.is_best_effort,
    "CrossNamespacePodAffinity": lambda ask, _: ask.crosses_namespaces,
    "PriorityClass": _has_class,
}
"""Whether a pod is in a scope, by the scope's name."""


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """ResourceQuota as numbers: thousandths of cores, and else whole units."""

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int] | None = None
    """What all its pods hold; None: the cluster does not say."""
    scopes: tuple[QuotaScope, ...] = ()

    @property
    def unread(self) -> tuple[str, ...]:
        """Scopes that are not understood."""
        return tuple(each.name for each in self.scopes if each.name not in _IS_IN)

    def covers(self, ask: QuotaAsk) -> bool:
        """Whether a pod counts; none does where a scope is not understood."""
        return not self.unread and all(each.has(ask) for each in self.scopes)


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """What the instances of services of a namespace may hold together of one resource, by a quota."""

    name: str
    """Such as `requests.nvidia.com/gpu of ResourceQuota chat/gpus`; services that share it have the same."""
    most: int
    """In units: thousandths of cores, mebibytes, and else whole units."""
    per_instance: int = 0
    """Units that an instance holds besides its devices."""
    per_device: Mapping[str, int] = field(default_factory=dict)
    """Units for each device, by GPU type."""

    def units_of(self, gpu_type: str, gpus: int) -> int:
        """Units of an instance with so many devices."""
        return self.per_instance + self.per_device.get(gpu_type, 0) * gpus
