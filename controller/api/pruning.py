"""Pruning of objects before validation: nulls are dropped, and of core/v1 objects all fields that placement ignores."""

from functools import cache
from typing import Any

from pydantic import BaseModel

from cluster.field_errors import model_in
from controller.api.fields import Loose, Strict

LEVELS = 150
"""Levels of maps and lists that are looked into: more than an object is accepted with (controller/kube/nesting.py), few
enough to recurse."""


def pruned(content: Any, model: type[BaseModel], *, sorts: tuple[type[BaseModel], ...] = (Loose,)) -> Any:
    """Plain data for `model`, not yet validated.

    A field that is null counts as left out, as on the API server; null in a list stays, and is an error there.
    Pruning first matters for `kubectl get -o json`, nine tenths of which placement does not read.

    sorts: base classes of the models whose unknown fields are dropped.
    """
    if type(content) is not dict or not issubclass(model, sorts):
        return without_nulls(content)
    return {
        key: without_nulls(content[key]) if inner is None else _each_pruned(content[key], inner, sorts)
        for key, inner in _inner_models(model).items()
        if content.get(key) is not None
    }


def known_part(content: Any, model: type[BaseModel]) -> Any:
    """Plain data from the API server, which has already refused fields that its own CRD does not have.

    Remaining fields that `model` does not have come from a later release's CRDs, which an older controller ignores.
    """
    return pruned(content, model, sorts=(Loose, Strict))


def _each_pruned(value: Any, model: type[BaseModel], sorts: tuple[type[BaseModel], ...]) -> Any:
    if type(value) is list:
        return [pruned(item, model, sorts=sorts) for item in value]
    return pruned(value, model, sorts=sorts)


def without_nulls(value: Any, levels: int = LEVELS) -> Any:
    """The value without nulls in maps; of maps and lists so many levels, below which there is nothing."""
    if type(value) is dict:
        inside = value.items() if levels else ()
        return {str(key): without_nulls(inner, levels - 1) for key, inner in inside if inner is not None}
    if type(value) is list:
        return [without_nulls(inner, levels - 1) for inner in value] if levels else []
    return value


@cache
def _inner_models(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Fields by their names in manifests, each with its model if it has one."""
    return {str(field.alias): model_in(field.annotation) for field in model.model_fields.values()}
