"""Disruption budgets of the snapshot: which running pods each covers, and how many of them may be stopped now."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from cluster.disruption import DisruptionBudget
from cluster.nodes import meets
from cluster.workloads import Requirement
from controller.api.structs import BudgetObject, Pod
from controller.snapshot.pod_rules import NotUnderstoodError, selected_by


@dataclass(slots=True)
class _Namespace:
    pods: dict[str, tuple[Mapping[str, str], bool]] = field(default_factory=dict)
    """Labels of each pod, and whether it is bound."""
    budgets: dict[str, tuple[BudgetObject, tuple[Requirement, ...] | None]] = field(default_factory=dict)
    """Budgets with what they require of labels; None: they select no pod."""
    covered: dict[str, dict[str, bool]] = field(default_factory=dict)
    """Pods that each budget covers, and whether they are bound."""

    def match(self, budget: str, pod: str) -> None:
        wanted, (labels, is_bound) = self.budgets[budget][1], self.pods[pod]
        if wanted is not None and all(meets(labels, each) for each in wanted):
            self.covered[budget][pod] = is_bound
        else:
            self.covered[budget].pop(pod, None)


class Budgets:
    """Budgets and the labels of pods, matched as they change: a changed pod only with the budgets of its namespace."""

    def __init__(self) -> None:
        self._namespaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)
        self._known: tuple[DisruptionBudget, ...] | None = ()

    def put(self, name: str, budget: BudgetObject) -> None:
        """name: `namespace/name`."""
        there = self._namespaces[name.partition("/")[0]]
        try:
            selected = selected_by(budget.spec.selector, "spec.selector")
        except NotUnderstoodError:  # the API server admits none
            selected = None
        there.budgets[name] = budget, selected
        there.covered[name] = {}
        for pod in there.pods:
            there.match(name, pod)
        self._known = None

    def remove(self, name: str) -> None:
        there = self._namespaces[name.partition("/")[0]]
        if there.budgets.pop(name, None) is not None:
            del there.covered[name]
            self._known = None

    def put_pod(self, name: str, pod: Pod) -> None:
        there, now = self._namespaces[pod.metadata.namespace], (pod.metadata.labels, bool(pod.spec.node_name))
        if there.pods.get(name) == now:
            return
        there.pods[name] = now
        for budget in there.budgets:
            there.match(budget, name)
            self._known = None

    def remove_pod(self, name: str) -> None:
        there = self._namespaces[name.partition("/")[0]]
        if there.pods.pop(name, None) is not None:
            for covered in there.covered.values():
                covered.pop(name, None)
                self._known = None

    def known(self) -> tuple[DisruptionBudget, ...]:
        """Budgets that cover a running pod, by name; the same object while nothing changed."""
        if self._known is None:
            found = []
            for _, there in sorted(self._namespaces.items()):
                for name, (budget, _) in sorted(there.budgets.items()):
                    pods = there.covered[name]
                    running = tuple(sorted(pod for pod, is_bound in pods.items() if is_bound))
                    if running:
                        found.append(DisruptionBudget(name, allowed_by(budget, len(pods), len(running)), running))
            self._known = tuple(found)
        return self._known


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
