"""Documentation of Tonnage's kinds and fields, from this release's CRD schemas; needs no cluster."""

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cluster.errors import ConfigError, Mistake, TonnageError, meant
from controller.api.labels import GROUP, VERSION

if TYPE_CHECKING:
    from controller.api.kind import Kind


WHEEL = Path(__file__).parents[1] / "shipped"
SOURCES = Path(__file__).parents[2]
FOLDERS = {"examples": "examples", "cluster-walk": "docs/cluster-walk", "chart": "helm/tonnage"}
"""Name in a wheel → place in the source tree (setup.py)."""


def shipped(name: str) -> Path:
    """Folder of this name. Raises TonnageError where neither a wheel nor a source tree has it, as in the image."""
    for folder in (WHEEL / name, SOURCES / FOLDERS[name]):
        if folder.is_dir():
            return folder
    raise TonnageError(f"this installation has no {name}; pip install tonnage has them")


FILES = Path("charts") / "crds" / "files"
"""Folder in the chart; a test compares its files with the models."""
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where it is available


@dataclass(frozen=True, slots=True)
class Definition:
    """Names of a kind, and its OpenAPI schema."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    schema: Callable[[], dict[str, Any]]
    """Called for the kind that is asked for alone: reading or making a schema is the slow part."""


def definitions() -> tuple[Definition, ...]:
    """Definitions of this release, in the order of their plurals."""
    try:
        files = sorted((shipped("chart") / FILES).glob("*.yaml"))
    except TonnageError:  # the image has no chart
        files = []
    return tuple(map(_definition_in, files)) if files else made()


def made(kinds: "Iterable[Kind] | None" = None) -> tuple[Definition, ...]:
    """Definitions made from the models; kinds: all of this release where none are given."""
    from controller.api.crds import crd
    from controller.api.kinds import KINDS, own_kinds

    own = sorted(own_kinds(KINDS if kinds is None else kinds), key=lambda kind: kind.plural)

    def of(kind: "Kind") -> Definition:
        return Definition(kind.name, kind.plural, kind.short_names, lambda: _schema(crd(kind)))

    return tuple(map(of, own))


def _definition_in(file: Path) -> Definition:
    """A definition of which only the head is read yet."""
    text = file.read_text(encoding="utf-8")
    names = yaml.load(text.partition("\n  versions:")[0], Loader=Loader)["spec"]["names"]  # noqa: S506  # a safe loader
    return Definition(
        names["kind"],
        names["plural"],
        tuple(names.get("shortNames", ())),
        lambda: _schema(yaml.load(text, Loader=Loader)),  # noqa: S506  # a safe loader
    )


def _schema(definition: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


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
