"""Node constraints of a pod's spec: node selector, required node affinity and tolerations."""

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from cluster.workloads import Operator, Requirement, Terms, Toleration
from controller.kube.structs import NodeConstraints, SelectorRequirement

Complain = Callable[[str, str], None]
"""Receives (problem, remedy) of an invalid affinity."""

_OPERATORS: Mapping[str, Operator] = {name: name for name in get_args(Operator)}


def terms_of(spec: NodeConstraints, complain: Complain) -> Terms:
    """Alternatives of which a node must meet one: each is the node selector and one term of the affinity."""
    selector = tuple(Requirement(key, "In", (value,)) for key, value in sorted(spec.node_selector.items()))
    required = spec.affinity.node_affinity.required
    if required is None:
        return (selector,) if selector else ()
    return tuple(
        selector + tuple(_requirement(each, complain) for each in (*term.match_expressions, *term.match_fields))
        for term in required.node_selector_terms
    )


def tolerations_of(spec: NodeConstraints) -> tuple[Toleration, ...]:
    """Tolerations with a known operator; any other tolerates nothing here."""
    known: dict[str, Literal["Equal", "Exists"]] = {"Equal": "Equal", "Exists": "Exists"}
    return tuple(
        Toleration(t.key, known[t.operator], t.value, t.effect) for t in spec.tolerations if t.operator in known
    )


def matches_node_names(spec: NodeConstraints) -> bool:
    """Whether its affinity matches nodes by name, as the pods of a DaemonSet do."""
    required = spec.affinity.node_affinity.required
    return required is not None and any(term.match_fields for term in required.node_selector_terms)


def _requirement(written: SelectorRequirement, complain: Complain) -> Requirement:
    operator = _OPERATORS.get(written.operator)
    if operator is None:
        complain(f"uses the operator {written.operator!r}", f"known: {', '.join(_OPERATORS)}")
        operator = "DoesNotExist"
    return Requirement(written.key, operator, tuple(written.values))
