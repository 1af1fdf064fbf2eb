"""Structural schemas: a pydantic model as the API server wants its kinds described."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from controller.api.rule import Rule

Schema = dict[str, Any]

_KEPT = (
    "description", "type", "format", "enum", "pattern", "default", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "minProperties", "maxProperties", "required", "x-kubernetes-int-or-string",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
)  # fmt: skip
_TURNED = (
    "title", "const", "anyOf", "$ref", "items", "properties", "additionalProperties", "exclusiveMinimum",
    "exclusiveMaximum",
)  # fmt: skip
_INT32 = range(-(2**31), 2**31)


def structural(model: type[BaseModel], rules: Iterable[Rule] = ()) -> Schema:
    """The schema of a kind's model, with its rules where they look.

    What a model may not use is refused with ValueError when the schema is made, not when it is applied: unions other
    than `X | None`, models that contain themselves, tuples of mixed types.
    """
    raw = model.model_json_schema(by_alias=True)
    made = _turned(raw, raw.get("$defs", {}), ())
    made["properties"] |= {
        "apiVersion": {"type": "string", "description": "Version of this form of the object."},
        "kind": {"type": "string", "description": "Kind of the object."},
        "metadata": {"type": "object"},
    }
    # An object without a status has none yet: nobody has looked at it.
    made["properties"].get("status", {}).pop("default", None)
    # The API server looks at these itself, and refuses a schema that says more of metadata than its type.
    made["required"] = [name for name in made["required"] if name not in ("apiVersion", "kind", "metadata")]
    for rule in rules:
        schema_at(made, rule.at).setdefault("x-kubernetes-validations", []).append(rule.schema)
    return made


def schema_at(schema: Schema, path: Iterable[str]) -> Schema:
    """The part of a structural schema at this path; `[]` steps into the items of a list."""
    for part in path:
        schema = schema["items"] if part == "[]" else schema["properties"][part]
    return schema


def _turned(raw: Schema, definitions: Schema, inside: tuple[str, ...]) -> Schema:
    node, inside = _resolved(raw, definitions, inside)
    unknown = set(node) - set(_KEPT) - set(_TURNED) - {"$defs"}
    if unknown:
        raise ValueError(f"{raw.get('title', '?')}: no structural schema holds {', '.join(sorted(unknown))}")
    made = {key: node[key] for key in _KEPT if key in node}
    if "const" in node:
        made["enum"] = [node["const"]]
    for side in ("Minimum", "Maximum"):
        if f"exclusive{side}" in node:
            made |= {side.lower(): node[f"exclusive{side}"], f"exclusive{side}": True}
    _trim_default(made)
    match node.get("type"):
        case "integer":
            bounds = (node.get("minimum", 2**31), node.get("maximum", 2**31))
            made["format"] = "int32" if all(bound in _INT32 for bound in bounds) else "int64"
        case "array":
            made.setdefault("x-kubernetes-list-type", "atomic")
            made["items"] = _turned(node["items"], definitions, inside)
        case "object":
            _turn_object(made, node, definitions, inside)
    return made


def _turn_object(made: Schema, node: Schema, definitions: Schema, inside: tuple[str, ...]) -> None:
    fields, others = node.get("properties"), node.get("additionalProperties")
    if fields is not None:
        made["properties"] = {name: _turned(field, definitions, inside) for name, field in fields.items()}
    if others is True:
        made["x-kubernetes-preserve-unknown-fields"] = True
    elif isinstance(others, dict):
        made["additionalProperties"] = _turned(others, definitions, inside)


def _resolved(node: Schema, definitions: Schema, inside: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
    """The node with what it refers to in its place, and `X | None` as X: a field that is null was left out."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name in inside:
            raise ValueError(f"{name} contains itself, which no structural schema does")
        return _resolved({**definitions[name], **_without(node, "$ref")}, definitions, (*inside, name))
    if node.get("x-kubernetes-int-or-string"):
        return _without(node, "anyOf"), inside
    if "anyOf" in node:
        options = [option for option in node["anyOf"] if option.get("type") != "null"]
        if len(options) != 1:
            raise ValueError(f"{node.get('title', '?')} is one of several types; give each a field of its own")
        return _resolved({**options[0], **_without(node, "anyOf")}, definitions, inside)
    return node, inside


def _without(node: Schema, key: str) -> Schema:
    return {name: value for name, value in node.items() if name != key}


def _trim_default(made: Schema) -> None:
    """A default that says nothing is left out: null, empty text, nothing in a list, an object of such fields."""
    if "default" not in made:
        return
    default = _said(made["default"])
    if default in (None, "", [], {}):
        del made["default"]
    else:
        made["default"] = default


def _said(default: Any) -> Any:
    if isinstance(default, dict):
        return {key: said for key, value in default.items() if (said := _said(value)) not in (None, "", [], {})}
    return default
