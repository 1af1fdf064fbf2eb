"""Markdown reference of all kinds, made from their models; `python -m controller.api.reference` updates its page."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from controller.api.conditions import CONDITIONS
from controller.api.crds import Schema, structural
from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.notation import DURATION_PATTERN

PAGE = Path("docs") / "manifests.md"
BEGIN, END = "<!-- made by `make crds` from controller/api; a test compares -->", "<!-- end -->"
COMMON = ("observedGeneration", "conditions")
"""Fields of every status."""


def reference(kinds: Iterable[Kind] = KINDS) -> str:
    """Names of the kinds, the conditions of their statuses, and a section for each kind."""
    own = own_kinds(kinds)
    rows = (
        f"| {kind.name} | {', '.join(f'`{name}`' for name in (kind.plural, *kind.short_names))} | "
        f"{'yes' if kind.is_namespaced else 'no'} |\n"
        for kind in own
    )
    conditions = (f"| `{name}` | {meaning} |\n" for name, meaning in CONDITIONS.items())
    tables = (
        "".join(("| kind | in kubectl | namespaced |\n|---|---|---|\n", *rows)),
        "".join(("| condition | holds when |\n|---|---|\n", *conditions)),
    )
    return "\n".join((*tables, *map(_kind, own)))


def page_with(page: str, made: str) -> str:
    """A page with this text between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{made}\n{END}{rest.partition(END)[2]}"


def _kind(kind: Kind) -> str:
    doc = " ".join((kind.model.__doc__ or "").split())
    scope = "Namespaced." if kind.is_namespaced else "Not namespaced."
    head = f"## {kind.name}\n\n{doc.removesuffix(' Not namespaced.')} {scope}\n\n`spec`:\n\n"
    parts = structural(kind.model)["properties"]
    fields = "".join(f"{line}\n" for line in field_lines(parts["spec"]))
    status = "".join(f"{line}\n" for line in field_lines(parts["status"], written=True)) if kind.has_status else ""
    return head + fields + _rules(kind) + (f"\n`status`, written by Tonnage:\n\n{status}" if status else "")


def _rules(kind: Kind) -> str:
    """Rules between fields, with the messages that violations get."""
    if not kind.rules:
        return ""
    lines = (f"- `{'.'.join(rule.at).replace('.[]', '[]')}`: {rule.message}\n" for rule in kind.rules if rule.at)
    whole = (f"- {rule.message}\n" for rule in kind.rules if not rule.at)
    return "\nRules between fields, with the messages of violations:\n\n" + "".join((*lines, *whole))


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


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), reference()), encoding="utf-8")
