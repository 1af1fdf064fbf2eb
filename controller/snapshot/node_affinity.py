"""Node constraints of a pod's spec: node selector, required node affinity and tolerations."""

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from cluster.nodes import HOSTNAME_LABEL, NODE_NAME_FIELD
from cluster.workloads import OWN_NODE, Operator, Requirement, Terms, Toleration
from controller.api.structs import NodeConstraints, SelectorRequirement

Complain = Callable[[str, str], None]
"""Receives (problem, remedy) of an invalid affinity."""

MOST_TERMS = 512
"""Maximum number of requirements and values in node selector and affinity. Each is looked up for every plan; lists of
hosts near some data have some dozens."""
MOST_TOLERATIONS = 128
"""Maximum number of tolerations. Pods of DaemonSets that run everywhere have a dozen."""

_OPERATORS: Mapping[str, Operator] = {name: name for name in get_args(Operator)}
_NOWHERE: Terms = ((Requirement(HOSTNAME_LABEL, "In"),),)
"""Alternatives that no node meets: no value is one of none."""


def terms_of(spec: NodeConstraints, complain: Complain) -> Terms:
    """Alternatives of which a node must meet one: each is the node selector and one term of the affinity.

    None of them where there are more than are looked up. A term without any requirement matches no node, and the API
    server takes it. Source: core/v1, NodeSelectorTerm.
    """
    required = spec.affinity.node_affinity.required
    if (count := _requirements_and_values(spec)) > MOST_TERMS:
        complain(f"has {count} requirements and values", f"write at most {MOST_TERMS}")
        return ()
    selector = tuple(Requirement(key, "In", (value,)) for key, value in sorted(spec.node_selector.items()))
    if required is None:
        return (selector,) if selector else ()
    written = ((*term.match_expressions, *term.match_fields) for term in required.node_selector_terms)
    terms = (selector + tuple(_requirement(each, complain) for each in term) for term in written if term)
    return tuple(terms) or _NOWHERE


def _requirements_and_values(spec: NodeConstraints) -> int:
    """Number of requirements and values in all alternatives, counted before any is made: each has the whole selector,
    so a selector and terms of a few thousand entries each make millions."""
    required = spec.affinity.node_affinity.required
    terms = required.node_selector_terms if required else ()
    each = (one for term in terms for one in (*term.match_expressions, *term.match_fields))
    return 2 * len(spec.node_selector) * max(1, len(terms)) + sum(1 + len(one.values) for one in each)


def tolerations_of(spec: NodeConstraints, complain: Complain) -> tuple[Toleration, ...]:
    """Tolerations with a known operator; any other tolerates nothing here. None, where there are too many."""
    if len(spec.tolerations) > MOST_TOLERATIONS:
        complain(f"has {len(spec.tolerations)} tolerations", f"write at most {MOST_TOLERATIONS}")
        return ()
    known: dict[str, Literal["Equal", "Exists"]] = {"Equal": "Equal", "Exists": "Exists"}
    return tuple(
        Toleration(t.key, known[t.operator], t.value, t.effect) for t in spec.tolerations if t.operator in known
    )


def pinned_where_it_runs(terms: Terms, node: str) -> Terms:
    """Terms of a pod that runs on this node, with a requirement of this one node in the same words on every node.

    A DaemonSet pins each of its pods by the node's name, and placement mode `gate` by its hostname. A requirement on
    the hostname that all alternatives contain was met when the pod was bound, so it is this node's.
    """
    pins = {r for r in set(terms[0]).intersection(*terms) if _is_pin(r, node)} if terms else set()
    if not pins:
        return terms
    return tuple(tuple(Requirement(r.key, "In", (OWN_NODE,)) if r in pins else r for r in term) for term in terms)


def _is_pin(requirement: Requirement, node: str) -> bool:
    if requirement.operator != "In" or len(requirement.values) != 1:
        return False
    return requirement.key == HOSTNAME_LABEL or (requirement.key, *requirement.values) == (NODE_NAME_FIELD, node)


def matches_node_names(terms: Terms) -> bool:
    """Whether they match nodes by name, as those of a DaemonSet's pending pods do."""
    return any(r.key == NODE_NAME_FIELD and r.values != (OWN_NODE,) for term in terms for r in term)


def _requirement(written: SelectorRequirement, complain: Complain) -> Requirement:
    operator = _OPERATORS.get(written.operator)
    if operator is None:
        complain(f"uses the operator {written.operator!r}", f"known: {', '.join(_OPERATORS)}")
        operator = "DoesNotExist"
    return Requirement(written.key, operator, tuple(written.values))
