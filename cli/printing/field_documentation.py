"""Documentation of Tonnage's kinds and fields, from the models of this release; needs no cluster."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from cluster.errors import ConfigError, Mistake, meant
from controller.api.crds import Schema, structural
from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.notation import DURATION_PATTERN

WIDTH = 100
COMMON = ("observedGeneration", "conditions")
"""Fields of every status."""


def field_text(path: str, kinds: Iterable[Kind] = KINDS) -> str:
    """Page about `KIND.FIELD.FIELD`, with all fields inside. Raises ConfigError for an unknown kind or field."""
    word, *fields = path.rstrip(".").split(".")
    kind, here = _kind(word, kinds)
    for depth, field in enumerate(fields):
        below = _below(here)
        if field not in below:
            name = ".".join((kind.name, *fields[:depth]))
            raise ConfigError(Mistake(path, f"{name} has no field {field!r}", meant(field, below)))
        here = below[field]
    words = here.get("description") or " ".join((kind.model.__doc__ or "").split())
    return "\n".join([".".join((kind.name, *fields)), *wrap(words, WIDTH), "", *field_lines(here)]).rstrip() + "\n"


def field_names(incomplete: str) -> Sequence[str]:
    """Continuations of `KIND.FIELD.FIE`: the fields below the last whole one. Empty for an unknown kind or field."""
    whole, *_ = incomplete.rpartition(".")
    word, *fields = whole.split(".")
    try:
        here = _kind(word, KINDS)[1]
    except ConfigError:
        return ()
    for field in fields:
        here = _below(here).get(field, {})
    return [f"{whole}.{name}" for name in _below(here)]


def _kind(word: str, kinds: Iterable[Kind]) -> tuple[Kind, Schema]:
    own = own_kinds(kinds)
    for kind in own:
        if word.lower() in (kind.name.lower(), kind.plural, *kind.short_names):
            return kind, structural(kind.model)
    words = f"{meant(word, [each.name.lower() for each in own])}; for an object write KIND/NAME"
    raise ConfigError(Mistake(word, "is not one of Tonnage's kinds", words))


def _below(schema: Schema) -> Schema:
    """Fields of an object, or of each entry of a list."""
    fields: Schema = schema.get("items", schema).get("properties", {})
    return fields


def field_lines(schema: Schema, indent: str = "", *, written: bool = False) -> Iterator[str]:
    """A line for each field, those of an object below it, without what every status has.

    written: of a status, which nobody but Tonnage writes and so has no defaults.
    """
    for name, field in schema.get("properties", {}).items():
        if name in COMMON:
            continue
        default = "required" if name in schema.get("required", ()) else _default(field)
        kind = ", ".join(filter(None, (_type(field), "" if written else default)))
        yield f"{indent}- `{name}` ({kind}): {field.get('description', '')}".rstrip(" :")
        yield from field_lines(field.get("items", field), f"{indent}  ", written=written)


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema['items'])}{_bounds(schema)}"
    if schema.get("pattern") == DURATION_PATTERN:
        return "duration"
    if schema.get("format") == "date-time":
        return "timestamp"
    names = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "object": "object"}
    return names[str(kind)] + _bounds(schema)


def _bounds(schema: Schema) -> str:
    """Bounds as text, such as `, from 1 to 16`. Lengths of text are left out."""
    low, high = schema.get("minimum"), schema.get("maximum")
    parts = []
    if low is not None and abs(low) < 2**31:
        parts.append(f"above {low:g}" if schema.get("exclusiveMinimum") else f"from {low:,}")
    if high is not None and abs(high) < 1e9:
        parts.append(f"to below {high:g}" if schema.get("exclusiveMaximum") else f"to {high:,}")
    if schema.get("minItems"):
        parts.append("not empty")
    return f", {' '.join(parts)}" if parts else ""


def _default(schema: Schema) -> str:
    match schema.get("default"):
        case None | dict():
            return ""
        case bool() as default:
            return f"default `{str(default).lower()}`"
        case float() as default:
            return f"default `{default:g}`"
        case default:
            return f"default `{default}`"
