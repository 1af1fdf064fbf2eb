"""Documentation of Tonnage's kinds and fields, from the models of this release; needs no cluster."""

from collections.abc import Iterable, Sequence
from textwrap import wrap

from cluster.errors import ConfigError, Mistake, meant
from controller.api.crds import Schema, structural
from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.reference import field_lines

WIDTH = 100


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
