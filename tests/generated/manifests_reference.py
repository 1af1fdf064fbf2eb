"""Markdown reference of all kinds; `python -m tests.generated.manifests_reference` updates its page."""

from collections.abc import Iterable
from pathlib import Path

from cli.printing.field_documentation import field_lines
from controller.api.conditions import CONDITIONS
from controller.api.crds import structural
from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds

PAGE = Path("docs") / "manifests.md"
BEGIN, END = "<!-- made by `make crds` from controller/api; a test compares -->", "<!-- end -->"


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


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), reference()), encoding="utf-8")
