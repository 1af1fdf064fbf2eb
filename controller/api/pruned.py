"""What of an object is read at all: without nulls, and of core/v1 objects only the fields that placement knows."""

from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from controller.api.fields import Loose


def pruned(content: Any, model: type[BaseModel]) -> Any:
    """Plain data for `model`. What people got wrong is still in it.

    A field that is null was left out, as the API server sees it; null in a list stays, and is a mistake there.
    Pruning first matters for `kubectl get -o json`, nine tenths of which is nothing that placement reads.
    """
    if type(content) is not dict or not issubclass(model, Loose):
        return without_nulls(content)
    return {
        key: without_nulls(content[key]) if inner is None else _each_pruned(content[key], inner)
        for key, inner in _inner_models(model).items()
        if content.get(key) is not None
    }


def _each_pruned(value: Any, model: type[BaseModel]) -> Any:
    return [pruned(item, model) for item in value] if type(value) is list else pruned(value, model)


def without_nulls(value: Any) -> Any:
    if type(value) is dict:
        return {str(key): without_nulls(inner) for key, inner in value.items() if inner is not None}
    if type(value) is list:
        return [without_nulls(inner) for inner in value]
    return value


@cache
def _inner_models(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Fields by the names that manifests use, and the model of those that have one."""
    return {str(field.alias): model_in(field.annotation) for field in model.model_fields.values()}


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `X`, `X | None` and `tuple[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for argument in get_args(annotation) if (found := model_in(argument)) is not None), None)
