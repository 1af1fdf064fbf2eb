"""Node and Pod of core/v1 in files: models made from the structs that planning reads, with the checks of their fields.

The API server has validated the objects of a cluster; those of a file are validated here, by the same description.
"""

from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from pydantic import Field, PlainValidator, create_model

from controller.api import notation, structs
from controller.api.fields import ListOf, Loose, ObjectMeta, Priority
from controller.api.kind import Kind
from controller.api.rule import Flaw, Path

CHECKED: dict[tuple[type[structs.Slim], str], Any] = {
    (structs.Node, "metadata"): ObjectMeta,
    (structs.SelectorRequirement, "operator"): Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
    (structs.PodToleration, "operator"): Literal["Equal", "Exists"],
    (structs.PodToleration, "effect"): Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
    (structs.NodeTaint, "key"): Annotated[str, Field(min_length=1)],
    (structs.NodeTaint, "effect"): Literal["NoSchedule", "PreferNoSchedule", "NoExecute"],
    (structs.PodSpec, "priority"): Priority | None,
    (structs.PodSpec, "preemption_policy"): Literal["PreemptLowerPriority", "Never"],
}
"""Types of fields that a file may not hold any text in."""
NOT_EMPTY = {(structs.PodSpec, "containers"), (structs.NodeSelector, "node_selector_terms")}
UNREAD = {
    (structs.PodStatus, "resource_claim_statuses"),
    (structs.PodClaim, "resource_claim_name"),
    (structs.PodClaim, "resource_claim_template_name"),
    (structs.NodeTaint, "time_added"),
}
"""Fields that are read of a cluster's objects alone."""
OPTIONAL = {(structs.PodClaim, "name")}


@cache
def _model(struct: type[structs.Slim]) -> type[Loose]:
    """Model of the files' part of a struct."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        key = (struct, field.name)
        if key in UNREAD:
            continue
        kind = CHECKED[key] if key in CHECKED else _checked(field.type)
        settings: dict[str, Any] = {"alias": field.encode_name}
        if key in NOT_EMPTY:
            settings["min_length"] = 1
        elif key in OPTIONAL:
            settings["default"] = ""
        elif isinstance(field.default, msgspec.Struct):
            settings["default"] = _model(type(field.default))()
        elif field.default is not msgspec.NODEFAULT:
            settings["default"] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            settings["default_factory"] = field.default_factory
        fields[field.name] = (kind, Field(**settings))
    return create_model(struct.__name__, __base__=Loose, **fields)


def _checked(kind: Any) -> Any:
    """Type of a field in a file, by its type in the struct."""
    if kind == structs.Amount:
        return Annotated[Decimal, PlainValidator(notation.amount)]
    if isinstance(kind, type) and issubclass(kind, structs.Unread):
        return Any
    if isinstance(kind, type) and issubclass(kind, structs.Slim):
        return _model(kind)
    arguments: Any = [_checked(each) for each in get_args(kind) if each is not ...]
    if get_origin(kind) is tuple:
        lists: Any = ListOf
        return lists[arguments[0]]
    if get_origin(kind) is dict:
        return dict[arguments[0], arguments[1]]
    if isinstance(kind, UnionType):
        return arguments[0] | None
    return kind


def _pod_flaws(pod: Any) -> Iterator[Flaw]:
    """Inconsistencies of a pod whose fields are each valid: node affinity that cannot be evaluated."""
    required = pod.spec.affinity.node_affinity.required
    root = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    for n, term in enumerate(required.node_selector_terms if required else ()):
        if not term.match_expressions and not term.match_fields:
            yield Flaw((*root, n), "is empty, which matches no node at all", "write a condition or leave the term out")
        for m, requirement in enumerate(term.match_expressions):
            yield from _requirement_flaws(requirement, (*root, n, "matchExpressions", m))
        for m, requirement in enumerate(term.match_fields):
            path = (*root, n, "matchFields", m)
            if requirement.key != "metadata.name":
                yield Flaw((*path, "key"), f"is {requirement.key}", "metadata.name is the only field that nodes match")
            yield from _requirement_flaws(requirement, path)


def _requirement_flaws(requirement: Any, path: Path) -> Iterator[Flaw]:
    count, operator = len(requirement.values), requirement.operator
    if operator in ("In", "NotIn") and not count:
        yield Flaw((*path, "values"), f"is empty, {operator} needs one at least")
    if operator in ("Exists", "DoesNotExist") and count:
        yield Flaw((*path, "values"), f"has {count} entries, {operator} takes none")
    if operator in ("Gt", "Lt"):
        digits = requirement.values[0].removeprefix("-") if count == 1 else ""
        if not (digits.isascii() and digits.isdigit()):
            yield Flaw((*path, "values"), f"should be one integer for {operator}")


# Structs name the labels and annotations that they read one by one; in a file any are valid.
_OWNERS: Any = (_checked(tuple[structs.OwnerReference, ...]), ())
CHECKED[structs.Pod, "metadata"] = create_model("PodMeta", __base__=ObjectMeta, owner_references=_OWNERS)


def _object(struct: type[structs.Slim]) -> type[Loose]:
    name = struct.__name__
    head: dict[str, Any] = {"api_version": (Literal["v1"], ...), "kind": (Literal[name], ...)}
    return create_model(name, __base__=_model(struct), **head)


POD = Kind(
    model=_object(structs.Pod),
    plural="pods",
    is_namespaced=True,
    api_version="v1",
    checks=(_pod_flaws,),
    has_status=False,
)
NODE = Kind(
    model=_object(structs.Node),
    plural="nodes",
    is_namespaced=False,
    api_version="v1",
    has_status=False,
)
