"""Requirements on labels as objects have them, and alternatives of them: those of both of two sets, or of any."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import get_args

from cluster.nodes import HOSTNAME_LABEL
from cluster.workloads import OWN_NODE, Operator, Requirement, Terms
from controller.api.structs import SelectorRequirement

NOWHERE: Terms = ((Requirement(HOSTNAME_LABEL, "In"),),)
"""Alternatives that no node meets: no value is one of none."""
_OPERATORS: Mapping[str, Operator] = {name: name for name in get_args(Operator)}
MOST_ALTERNATIVES = 16_384
"""Maximum number of requirements and values that two sets are joined to. Chosen: a pod with eight alternatives and a
volume on each of 2,000 nodes."""


def requirement(written: SelectorRequirement) -> Requirement | None:
    """A requirement as it is written in an object; None: its operator is unknown."""
    operator = _OPERATORS.get(written.operator)
    return None if operator is None else Requirement(written.key, operator, tuple(written.values))


def joined(first: Terms, second: Terms) -> Terms | None:
    """Alternatives that meet one of each; None where they are more than are looked up (`MOST_ALTERNATIVES`)."""
    if not first or not second:
        return first or second
    # Counted before any is made, as those of a pod are.
    sizes = [sum(1 + len(each.values) for term in terms for each in term) for terms in (first, second)]
    if len(second) * sizes[0] + len(first) * sizes[1] > MOST_ALTERNATIVES:
        return None
    both = (_both((*one, *other)) for one in first for other in second)
    return tuple(dict.fromkeys(term for term in both if term is not None)) or NOWHERE


def _both(term: tuple[Requirement, ...]) -> tuple[Requirement, ...] | None:
    """The requirements with one list of values for each label, None where no node meets them."""
    found: dict[tuple[str, str, tuple[str, ...]], Requirement] = {}
    for each in term:
        is_list = each.operator == "In" and OWN_NODE not in each.values
        place = (each.key, each.operator, () if is_list else each.values)
        if is_list and place in found:
            each = Requirement(each.key, "In", tuple(v for v in found[place].values if v in frozenset(each.values)))
            if not each.values:
                return None
        found[place] = each
    if any(key == other and (operator, against) == ("In", "DoesNotExist")
           for key, operator, _ in found for other, against, _ in found):  # fmt: skip
        return None
    return tuple(found.values())


def either(alternatives: Iterable[Terms]) -> Terms:
    """Alternatives of any of these, with one list of the values of each label that is required alone."""
    listed: defaultdict[str, set[str]] = defaultdict(set)
    others: dict[tuple[Requirement, ...], None] = {}
    for terms in alternatives:
        if not terms or not all(terms):
            return ()
        for term in terms:
            if len(term) == 1 and term[0].operator == "In":
                listed[term[0].key].update(term[0].values)
            else:
                others[term] = None
    lists = ((Requirement(key, "In", tuple(sorted(values))),) for key, values in sorted(listed.items()) if values)
    return (*lists, *others) or NOWHERE
