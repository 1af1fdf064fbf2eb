"""CustomResourceDefinitions of Tonnage's kinds, made from the models."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from controller.api.kind import Kind
from controller.api.labels import CATEGORY, GROUP, VERSION
from controller.api.notation import DURATION_PATTERN, duration
from controller.api.rule import Rule

Schema = dict[str, Any]

_KEPT = (
    "description", "type", "format", "enum", "pattern", "default", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "minProperties", "maxProperties", "required", "x-kubernetes-int-or-string",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
)  # fmt: skip
_CONVERTED = (
    "title", "const", "anyOf", "$ref", "items", "properties", "additionalProperties", "exclusiveMinimum",
    "exclusiveMaximum",
)  # fmt: skip
_INT32 = range(-(2**31), 2**31)


def structural(model: type[BaseModel], rules: Iterable[Rule] = ()) -> Schema:
    """Structural schema of a kind's model, with its rules at their paths.

    Raises ValueError for what a structural schema cannot express: unions other than `X | None`, models that contain
    themselves, tuples of mixed types. So the error appears when the schema is made, not when it is applied.
    """
    raw = model.model_json_schema(by_alias=True)
    made = _converted(raw, raw.get("$defs", {}), ())
    made["properties"] |= {
        "apiVersion": {"type": "string", "description": "API version of the object."},
        "kind": {"type": "string", "description": "Kind of the object."},
        "metadata": {"type": "object"},
    }
    # No default for the status: an object that was not yet processed has none.
    made["properties"].get("status", {}).pop("default", None)
    # The API server validates these itself, and refuses a schema with more about metadata than its type.
    made["required"] = [name for name in made["required"] if name not in ("apiVersion", "kind", "metadata")]
    for rule in rules:
        schema_at(made, rule.at).setdefault("x-kubernetes-validations", []).append(rule.schema)
    return made


def schema_at(schema: Schema, path: Iterable[str]) -> Schema:
    """Part of a structural schema at this path; `[]` steps into the items of a list."""
    for part in path:
        schema = schema["items"] if part == "[]" else schema["properties"][part]
    return schema


def _converted(raw: Schema, definitions: Schema, inside: tuple[str, ...]) -> Schema:
    node, inside = _resolved(raw, definitions, inside)
    unknown = set(node) - set(_KEPT) - set(_CONVERTED) - {"$defs"}
    if unknown:
        raise ValueError(f"{raw.get('title', '?')}: a structural schema cannot contain {', '.join(sorted(unknown))}")
    made = {key: node[key] for key in _KEPT if key in node}
    if "const" in node:
        made["enum"] = [node["const"]]
    for side in ("Minimum", "Maximum"):
        if f"exclusive{side}" in node:
            made |= {side.lower(): node[f"exclusive{side}"], f"exclusive{side}": True}
    if _without_empty(made.get("default")) in (None, "", [], {}):
        made.pop("default", None)
    match node.get("type"):
        case "integer":
            bounds = (node.get("minimum", 2**31), node.get("maximum", 2**31))
            made["format"] = "int32" if all(bound in _INT32 for bound in bounds) else "int64"
        case "array":
            made.setdefault("x-kubernetes-list-type", "atomic")
            made["items"] = _converted(node["items"], definitions, inside)
        case "object":
            fields, others = node.get("properties"), node.get("additionalProperties")
            if fields is not None:
                made["properties"] = {name: _converted(field, definitions, inside) for name, field in fields.items()}
            if others is True:
                made["x-kubernetes-preserve-unknown-fields"] = True
            elif isinstance(others, dict):
                made["additionalProperties"] = _converted(others, definitions, inside)
    if "default" in made:
        made["default"] = _as_written(_without_empty(made["default"]), made)
    return made


def _resolved(node: Schema, definitions: Schema, inside: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
    """The node with references resolved, and `X | None` as X: a field that is null counts as left out."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name in inside:
            raise ValueError(f"{name} contains itself, which a structural schema cannot")
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


def _as_written(default: Any, schema: Schema) -> Any:
    """A default in the form of a manifest: durations as text, not as seconds."""
    if isinstance(default, dict):
        fields = schema.get("properties", {})
        return {key: _as_written(value, fields.get(key, {})) for key, value in default.items()}
    is_duration = schema.get("pattern") == DURATION_PATTERN and isinstance(default, int | float)
    return duration(default) if is_duration else default


def _without_empty(default: Any) -> Any:
    if isinstance(default, dict):
        trimmed = {key: _without_empty(value) for key, value in default.items()}
        return {key: value for key, value in trimmed.items() if value not in (None, "", [], {})}
    return default


def crd(kind: Kind) -> dict[str, Any]:
    """CustomResourceDefinition of one kind, ready to apply."""
    subresources: dict[str, Any] = {"status": {}} if kind.has_status else {}
    if kind.scale is not None:
        subresources["scale"] = {
            "specReplicasPath": kind.scale.spec_path,
            "statusReplicasPath": kind.scale.status_path,
            "labelSelectorPath": kind.scale.selector_path,
        }
    columns = [
        {
            "name": column.name,
            "jsonPath": column.path,
            "type": column.type,
            "description": column.description,
            "priority": int(column.is_wide),
        }
        for column in kind.columns
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": subresources,
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": structural(kind.model, kind.rules)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.definition},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.short_names),
                "categories": [CATEGORY],
            },
            "versions": [version],
        },
    }
