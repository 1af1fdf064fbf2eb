"""Documentation of Tonnage's kinds and fields, from this release's CRD schemas; needs no cluster."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from cli.inputs.shipped import Definition, definitions
from cluster.errors import ConfigError, Mistake, meant
from controller.api.labels import GROUP, VERSION

Schema = dict[str, Any]

WIDTH = 80


def field_text(path: str, *, recursive: bool = False, known: Iterable[Definition] | None = None) -> str:
    """Page about `KIND.FIELD.FIELD` in kubectl explain's format. Raises ConfigError for an unknown kind or field.

    known: this release's definitions where none are given.
    """
    word, *fields = path.rstrip(".").split(".")
    found = _named(word, definitions() if known is None else known)
    here, name = found.schema(), ""
    for field in fields:
        below = _inside(here).get("properties", {})
        if field not in below:
            at = f"{found.kind}.{name}" if name else found.kind
            raise ConfigError(Mistake(path, f"{at} has no field {field!r}", meant(field, below)))
        here, name = below[field], field
    lines = [f"GROUP:      {GROUP}", f"KIND:       {found.kind}", f"VERSION:    {VERSION}", ""]
    if name:
        lines += [f"FIELD: {name} <{type_words(here)}>", *_enum(here, "  "), ""]
    lines += ["DESCRIPTION:", *_wrapped(here.get("description", "(no description)"), 4), ""]
    if below := _inside(here).get("properties"):
        lines += ["FIELDS:", *_fields(below, _inside(here).get("required", ()), 2, recursive=recursive)]
    return "\n".join(lines).rstrip("\n") + "\n"


def field_names(incomplete: str) -> list[str]:
    """Continuations of `KIND.FIELD.FIE`: the fields below the last whole one. Empty for an unknown kind or field."""
    whole, dot, _ = incomplete.rpartition(".")
    if not dot:
        return [each.kind.lower() for each in definitions()]
    word, *fields = whole.split(".")
    try:
        here = _named(word, definitions()).schema()
    except ConfigError:
        return []
    for field in fields:
        here = _inside(here).get("properties", {}).get(field, {})
    return [f"{whole}.{name}" for name in _inside(here).get("properties", {})]


def _named(word: str, known: Iterable[Definition]) -> Definition:
    for each in known:
        if word.lower() in (each.kind.lower(), each.plural, *each.short_names):
            return each
    names = [each.kind.lower() for each in known]
    raise ConfigError(
        Mistake(word, "is not one of Tonnage's kinds", f"{meant(word, names)}; for an object write KIND/NAME")
    )


def _inside(schema: Schema) -> Schema:
    """Schema of the innermost items, if the field is a list or a map."""
    while schema.get("type") == "array" or isinstance(schema.get("additionalProperties"), dict):
        schema = schema["items"] if schema.get("type") == "array" else schema["additionalProperties"]
    return schema


def type_words(schema: Schema) -> str:
    """Type as kubectl writes it: `[]Object`, `map[string]integer`."""
    if schema.get("type") == "array":
        return f"[]{type_words(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map[string]{type_words(schema['additionalProperties'])}"
    if schema.get("x-kubernetes-int-or-string"):
        return "IntOrString"
    return "Object" if schema.get("type") == "object" else str(schema.get("type", "any"))


def _fields(below: Schema, required: Any, indent: int, *, recursive: bool) -> Iterator[str]:
    for name, schema in sorted(below.items()):
        tail = " -required-" if name in required else ""
        yield f"{' ' * indent}{name}\t<{type_words(schema)}>{tail}"
        yield from _enum(schema, " " * indent)
        inside = _inside(schema)
        if recursive:
            yield from _fields(inside.get("properties", {}), inside.get("required", ()), indent + 2, recursive=True)
        else:
            yield from _wrapped(schema.get("description", ""), indent + 2)
            yield ""


def _enum(schema: Schema, indent: str) -> Iterator[str]:
    if values := schema.get("enum"):
        yield f"{indent}enum: {', '.join(map(str, values))}"


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)
