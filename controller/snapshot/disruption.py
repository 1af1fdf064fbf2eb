"""Disruption budgets of the snapshot: which running pods each covers, and how many of them may be stopped now."""

from math import ceil

from cluster.disruption import DisruptionBudget
from cluster.workloads import Crowd
from controller.api.structs import BudgetObject
from controller.snapshot.pod_rules import NotUnderstoodError, selected_by
from controller.snapshot.pod_table import PodColumns

Budgets = dict[str, tuple[BudgetObject, Crowd]]
"""Budgets by `namespace/name`, each with the pods that it covers."""


def covered_by(name: str, budget: BudgetObject) -> Crowd:
    """The pods that a budget covers. name: `namespace/name`."""
    try:
        selected = selected_by(budget.spec.selector, "spec.selector")
    except NotUnderstoodError:  # the API server admits none
        selected = None
    return Crowd(namespaces=(name.partition("/")[0],), labels=selected)


def budgets_of(budgets: Budgets, pods: PodColumns) -> tuple[DisruptionBudget, ...]:
    """The budgets that cover a running pod, sorted by namespace and name."""
    members = pods.members_of(tuple(dict.fromkeys(crowd for _, crowd in budgets.values())))
    found = []
    for name, (budget, crowd) in sorted(budgets.items(), key=lambda each: each[0].split("/")):
        expected, running = members.get(crowd, (0, ()))
        if running:
            found.append(DisruptionBudget(name, allowed_by(budget, expected, len(running)), running))
    return tuple(found)


def allowed_by(budget: BudgetObject, expected: int, healthy: int) -> int:
    """Pods that a budget allows to be stopped: as its controller wrote, or, where none did, by its specification.

    expected, healthy: pods that it covers, and those that run. One that was changed since, or whose numbers cannot be
    read, allows none, as the Eviction API has it.
    """
    spec, status = budget.spec, budget.status
    if status.observed_generation is not None:
        return max(0, status.disruptions_allowed) if status.observed_generation >= budget.metadata.generation else 0
    try:
        if spec.max_unavailable is not None:
            return max(0, healthy - (expected - _pods(spec.max_unavailable, expected)))
        return max(0, healthy - _pods(1 if spec.min_available is None else spec.min_available, expected))
    except ValueError:
        return 0


def _pods(amount: int | str, of: int) -> int:
    """A number of pods, or a percentage of them, rounded up as the controller of budgets does."""
    return ceil(int(amount[:-1]) * of / 100) if isinstance(amount, str) and amount.endswith("%") else int(amount)
