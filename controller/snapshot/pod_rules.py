"""What a pod asks of other pods: affinity, anti-affinity, spread and host ports, and budgets for stopping them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from cluster.arrays import IntArray
from cluster.disruption import DisruptionBudget
from cluster.nodes import meets
from cluster.workloads import Beside, Crowd, HostPort, Operator, PodRule, PodShape, PodState, Requirement, Terms
from controller.api.structs import BudgetObject, LabelSelector, Pod, PodAffinityTerm, PodSpec, SpreadConstraint
from controller.snapshot.nodes import MOST_TERMS, requirement

MOST_RULES = 64
"""Maximum number of rules about other pods. Charts write one or two."""


class NotUnderstoodError(ValueError):
    """Error for a hard demand of a pod that no rule here knows: the pod is not placed."""

    def __init__(self, path: str, problem: str) -> None:
        """path: field of the pod, such as `spec.volumes[0].rbd`."""
        super().__init__(f"{path} {problem}")


def beside_of(pod: Pod, terms: Terms) -> Beside:
    """The pod's rules about other pods, and its host ports. terms: its own node terms. Raises NotUnderstoodError."""
    spec, labels, namespace = pod.spec, pod.metadata.labels, pod.metadata.namespace
    rules = list[PodRule]()
    for n, constraint in enumerate(spec.topology_spread_constraints):
        if constraint.when_unsatisfiable != "ScheduleAnyway":
            path = f"spec.topologySpreadConstraints[{n}]"
            rules.append(_spread(constraint, path, labels, namespace, terms))
    for kind, affinity in (("near", spec.affinity.pod_affinity), ("apart", spec.affinity.pod_anti_affinity)):
        for n, term in enumerate(affinity.required):
            field = "podAffinity" if kind == "near" else "podAntiAffinity"
            path = f"spec.affinity.{field}.requiredDuringSchedulingIgnoredDuringExecution[{n}]"
            crowd = _crowd(term, path, labels, namespace)
            if kind == "near":
                rules.append(PodRule("near", replace(crowd, leaves_out="nominated"), term.topology_key))
            else:
                rules.append(PodRule("apart", crowd, term.topology_key))
    count = sum(len(each.values) + 1 for rule in rules for each in rule.crowd.labels or ())
    if len(rules) > MOST_RULES or count > MOST_TERMS:
        problem = f"has {len(rules)} rules about other pods with {count} requirements and values; "
        raise NotUnderstoodError("spec", problem + f"{MOST_RULES} and {MOST_TERMS} are read at most")
    return Beside(rules=tuple(dict.fromkeys(rules)), ports=tuple(sorted(set(host_ports(spec)))))


def host_ports(spec: PodSpec) -> Iterator[HostPort]:
    """Ports that its containers and sidecars take on its node."""
    for container in (*spec.containers, *(each for each in spec.init_containers if each.is_sidecar)):
        for port in container.ports:
            # Of a pod on the node's network, the API server writes the host port that is missing.
            if number := port.host_port or (port.container_port if spec.host_network else 0):
                yield HostPort(number, port.protocol or "TCP", port.host_ip or HostPort(0).address)


def _spread(
    constraint: SpreadConstraint, path: str, labels: Mapping[str, str], namespace: str, terms: Terms
) -> PodRule:
    if constraint.when_unsatisfiable != "DoNotSchedule":
        raise NotUnderstoodError(f"{path}.whenUnsatisfiable", f"is {constraint.when_unsatisfiable!r}")
    for name, policy in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        if policy not in ("Honor", "Ignore"):
            raise NotUnderstoodError(f"{path}.{name}", f"is {policy!r}")
    selected = selected_by(constraint.label_selector, f"{path}.labelSelector")
    return PodRule(
        "spread",
        Crowd(
            namespaces=(namespace,),
            # kube-scheduler counts no pod for a selector without requirements.
            labels=_with_keys(selected, constraint.match_label_keys, "In", labels) or None,
            leaves_out="ending",
        ),
        constraint.topology_key,
        constraint.max_skew,
        constraint.min_domains or 1,
        terms if constraint.node_affinity_policy == "Honor" else (),
        constraint.node_taints_policy == "Honor",
    )


def _crowd(term: PodAffinityTerm, path: str, labels: Mapping[str, str], namespace: str) -> Crowd:
    selected = selected_by(term.label_selector, f"{path}.labelSelector")
    selected = _with_keys(selected, term.match_label_keys, "In", labels)
    others, named = term.namespace_selector, tuple(sorted(set(term.namespaces)))
    return Crowd(
        namespaces=named or (() if others is not None else (namespace,)),
        namespace_labels=None if others is None else selected_by(others, f"{path}.namespaceSelector"),
        labels=_with_keys(selected, term.mismatch_label_keys, "NotIn", labels),
    )


def selected_by(selector: LabelSelector | None, path: str) -> tuple[Requirement, ...] | None:
    """Requirements of a label selector; None where it is missing, which selects nothing. Raises NotUnderstoodError."""
    if selector is None:
        return None
    found = {Requirement(key, "In", (value,)) for key, value in selector.match_labels.items()}
    for each in selector.match_expressions:
        made = requirement(each)
        if made is None or made.operator in ("Gt", "Lt"):  # which only nodes are selected by
            raise NotUnderstoodError(f"{path}.matchExpressions", f"uses the operator {each.operator!r}")
        found.add(replace(made, values=tuple(sorted(set(made.values)))))
    return _ordered(found)


def _with_keys(
    selected: tuple[Requirement, ...] | None, keys: Iterable[str], operator: Operator, labels: Mapping[str, str]
) -> tuple[Requirement, ...] | None:
    """The requirements with the pod's own values of these labels, as the API server merges them; twice is as once."""
    if selected is None:
        return None
    return _ordered({*selected, *(Requirement(key, operator, (labels[key],)) for key in keys if key in labels)})


def _ordered(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    return tuple(sorted(requirements, key=lambda each: (each.key, each.operator, each.values)))


Marks = tuple[str, tuple[tuple[str, str], ...], PodState]
"""Namespace and sorted labels of a pod, and its state: what decides to which crowds it belongs."""


class Membership:
    """Crowds in use and who belongs to them; what was found is kept while crowds and namespaces stay the same."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]], crowds: tuple[Crowd, ...]) -> None:
        """namespaces: labels of each namespace; one that is missing has its name's label alone."""
        self.namespaces, self.crowds = namespaces, crowds
        self._by_pair: dict[tuple[str, str], list[Crowd]] = {}
        """Crowds by a label and a value of which their members must have one; those without such a label under ""."""
        for crowd in crowds:
            if crowd.labels is None:
                continue
            needed = next((each for each in crowd.labels if each.operator == "In"), None)
            for pair in [(needed.key, value) for value in needed.values] if needed else [("", "")]:
                self._by_pair.setdefault(pair, []).append(crowd)
        self._sets: dict[tuple[Crowd, ...], int] = {}
        """Number of each set of crowds that some pod belongs to."""
        self._of: list[int] = []
        """Number of the set of each of the marks that were asked about."""

    @property
    def sets(self) -> list[tuple[Crowd, ...]]:
        """Different sets of crowds that pods belong to, each in the order of `crowds`."""
        return list(self._sets)

    def of(self, marks: Sequence[Marks]) -> IntArray:
        """Index into `sets` for each of these marks; since the last call, marks may only have been appended."""
        for namespace, labels, state in marks[len(self._of) :]:
            own = dict(labels)
            likely = [each for pair in (*labels, ("", "")) for each in self._by_pair.get(pair, ())]
            found = [
                crowd
                for crowd in likely
                if not (state and state == crowd.leaves_out)
                and self._is_within(namespace, crowd)
                and all(meets(own, each) for each in crowd.labels or ())
            ]
            crowds = tuple(sorted(dict.fromkeys(found), key=repr))
            self._of.append(self._sets.setdefault(crowds, len(self._sets)))
        return np.array(self._of, dtype=np.int64)

    def _is_within(self, namespace: str, crowd: Crowd) -> bool:
        if namespace in crowd.namespaces:
            return True
        if crowd.namespace_labels is None:
            return False
        labels = self.namespaces.get(namespace, {"kubernetes.io/metadata.name": namespace})
        return all(meets(labels, each) for each in crowd.namespace_labels)


def crowds_of(shapes: Iterable[PodShape]) -> tuple[Crowd, ...]:
    """Crowds that the rules of these shapes name, each once."""
    return tuple(dict.fromkeys(rule.crowd for shape in shapes for rule in shape.beside.rules))


Budgets = dict[str, tuple[BudgetObject, Crowd]]
"""Budgets by `namespace/name`, each with the pods that it covers."""
MembersOf = Callable[[tuple[Crowd, ...]], Mapping[Crowd, tuple[int, tuple[str, ...]]]]
"""Number of the pods in each crowd, and those of them that run."""


def covered_by(name: str, budget: BudgetObject) -> Crowd:
    """The pods that a budget covers. name: `namespace/name`."""
    try:
        selected = selected_by(budget.spec.selector, "spec.selector")
    except NotUnderstoodError:  # the API server admits none
        selected = None
    return Crowd(namespaces=(name.partition("/")[0],), labels=selected)


def budgets_of(budgets: Budgets, members_of: MembersOf) -> tuple[DisruptionBudget, ...]:
    """The budgets that cover a running pod, sorted by namespace and name."""
    members = members_of(tuple(dict.fromkeys(crowd for _, crowd in budgets.values())))
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
