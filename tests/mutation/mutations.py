"""Curated mutations: each breaks one rule of the domain at one place of the source."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
RULES = Path(__file__).parent / "rules"
_LAYOUT = frozenset(
    {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)

_ADDED = frozenset((",", closing) for closing in ")]}")
"""A comma that only formatting adds, with the token after it."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule, and the change of the source that breaks it."""

    rule: str
    file: str
    """Path from the root."""
    within: str
    """Qualified name of the function or class that holds `old`; empty: the module."""
    old: str
    """Source to replace. Whitespace, line breaks, comments and trailing commas do not count."""
    new: str
    tests: tuple[str, ...]
    """Test files, folders or node ids that must notice it."""


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a source: offsets of its first character, and of the one after its last."""

    start: int
    end: int


def mutations() -> tuple[Mutation, ...]:
    """All mutations, in the order of the files in `rules/`."""
    return tuple(each for path in sorted(RULES.glob("*.yaml")) for each in _read(path))


def _read(path: Path) -> Iterator[Mutation]:
    for group in yaml.safe_load(path.read_text(encoding="utf-8")):
        for each in group["rules"]:
            tests = tuple(str(each.get("tests", group.get("tests", ""))).split())
            yield Mutation(each["rule"], group["file"], each.get("within", ""), each["old"], each["new"], tests)


def places(mutation: Mutation, source: str) -> tuple[Span, ...]:
    """Every occurrence of the mutation's anchor in the source; a sound mutation has exactly one."""
    tokens, wanted = _tokens(source), [word for word, _ in _tokens(mutation.old)]
    bounds = _definition(mutation.within, source)
    starts = (n for n in range(len(tokens) - len(wanted) + 1) if tokens[n][0] == wanted[0])
    matches = (tokens[n : n + len(wanted)] for n in starts)
    spans = (Span(each[0][1].start, each[-1][1].end) for each in matches if [word for word, _ in each] == wanted)
    return tuple(span for span in spans if bounds.start <= span.start and span.end <= bounds.end)


def mutated(mutation: Mutation, source: str) -> str:
    """The source with the rule broken. Raises ValueError when the anchor is not there exactly once."""
    found = places(mutation, source)
    if len(found) != 1:
        raise ValueError(f"{mutation.file}: {mutation.rule}: its anchor occurs {len(found)} times")
    return source[: found[0].start] + mutation.new + source[found[0].end :]


@cache
def _tokens(source: str) -> list[tuple[str, Span]]:
    """Tokens without layout, and without the commas that only formatting adds."""
    starts = _line_starts(source)
    found = [
        (each.string, Span(starts[each.start[0] - 1] + each.start[1], starts[each.end[0] - 1] + each.end[1]))
        for each in tokenize.generate_tokens(io.StringIO(source).readline)
        if each.type not in _LAYOUT
    ]
    following = [word for word, _ in found[1:]] + [""]
    return [each for each, after in zip(found, following, strict=True) if (each[0], after) not in _ADDED]


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return [*starts, len(source)]


def _definition(within: str, source: str) -> Span:
    """Span of a function or class; empty where there is none of that name."""
    if not within:
        return Span(0, len(source))
    node: ast.AST = ast.parse(source)
    for name in within.split("."):
        inner = (each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == name)
        if (found := next(inner, None)) is None:
            return Span(0, 0)
        node = found
    starts = _line_starts(source)
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return Span(starts[node.lineno - 1], starts[node.end_lineno or node.lineno])
