"""Counts of a checkout: lines and files by folder, imports, docstrings, functions called once, names used twice."""

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

FOLDERS = (
    "autoscaler",
    "benchmarks",
    "cli",
    "cluster",
    "controller",
    "deploy",
    "health",
    "isolation",
    "nodeagent",
    "placement",
    "power",
    "simulator",
    "tonnage",
)
FLOORS = ("docstrings in % of signs",)
"""Counts that must not fall: what gets shorter must not get denser."""
UNBOUNDED = ("lines", "mean lines of a file", "median lines of a function", "90th percentile of lines of a function")
"""Counts that are for reading alone; lines have a ceiling by folder."""
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTION)


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file of the product."""

    path: Path
    """Relative to the checkout."""
    text: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        return self.path.parts[0]

    @property
    def module(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(root: Path) -> list[Source]:
    """Every Python file outside tests/, the environment and build folders."""
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*.py"))]
    return [source_of(file.relative_to(root), file.read_text("utf-8")) for file in files]


def source_of(path: Path, text: str) -> Source:
    return Source(path, text, ast.parse(text))


def counts(root: Path) -> dict[str, float]:
    """Every count of the checkout at `root`, by the name that its ceiling has in ceilings.toml."""
    read = sources(root)
    lines = Counter[str]()
    for source in read:
        lines[source.folder] += source.text.count("\n")
    total = lines.total()
    code = [line for source in read for line in _code(source)]
    functions = [_length(node) for source in read for node in ast.walk(source.tree) if isinstance(node, FUNCTION)]
    in_controller = [source for source in read if source.folder == "controller"]
    importers = _importers(read)
    return {f"lines in {folder}": lines[folder] for folder in FOLDERS} | {
        "lines": total,
        "files": len(read),
        "mean lines of a file": total / len(read),
        "median lines of a function": median(functions),
        "90th percentile of lines of a function": quantiles(functions, n=10)[-1],
        "import lines in %": 100 * sum(map(_import_lines, read)) / total,
        "private functions called once": sum(1 for source in read for _ in called_once(source)),
        "files with one importer": sum(1 for source in read if len(importers[source.module]) == 1),
        "public class names in two files": len(names_twice(read)),
        "most parameters of a constructor": max(n for n, _ in constructors(read)),
        "Callable in controller": sum(source.text.count("Callable[") for source in in_controller),
        "lambdas in controller": sum(_lambdas(source) for source in in_controller),
        "docstrings in % of signs": 100 * sum(map(_docstring_signs, read)) / sum(len(source.text) for source in read),
        "mean length of a line of code": sum(map(len, code)) / len(code),
        "Makefile lines": (root / "Makefile").read_text("utf-8").count("\n"),
        "README words": _words(root / "README.md"),
        "CHANGELOG words": _words(root / "CHANGELOG.md"),
        "docs words": sum(map(_words, (root / "docs").rglob("*.md"))),
    }


def ceilings() -> dict[str, float]:
    """The ceilings that hold now, and floors where the name says so."""
    text = Path(__file__).with_name("ceilings.toml").read_text("utf-8")
    return {name: float(limit) for name, limit in tomllib.loads(text).items()}


def called_once(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Private functions and methods whose name is used in exactly one place of their file."""
    used = Counter[str]()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name):
            used[node.id] += 1
        elif isinstance(node, ast.Attribute):
            used[node.attr] += 1
    for node in ast.walk(source.tree):
        is_private = isinstance(node, FUNCTION) and node.name.startswith("_") and not node.name.startswith("__")
        if isinstance(node, FUNCTION) and is_private and used[node.name] == 1:
            yield node


def constructors(read: list[Source]) -> Iterator[tuple[int, str]]:
    """Number of parameters beside `self`, and the class, of every constructor that is written out."""
    for source in read:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                        every = (*part.args.posonlyargs, *part.args.args, *part.args.kwonlyargs)
                        yield len(every) - 1, f"{source.path}: {node.name}"


def names_twice(read: list[Source]) -> dict[str, list[Path]]:
    """Public classes that are defined in two files or more, and where."""
    places = defaultdict[str, list[Path]](list)
    for source in read:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(source.path)
    return {name: found for name, found in places.items() if len(set(found)) > 1}


def _importers(read: list[Source]) -> dict[str, set[Path]]:
    """Files of the product that import each module."""
    found = defaultdict[str, set[Path]](set)
    for source in read:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    found[name].add(source.path)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.name].add(source.path)
    return found


def _import_lines(source: Source) -> int:
    return sum(_length(node) for node in ast.walk(source.tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _code(source: Source) -> list[str]:
    """Lines that are neither blank nor part of an import: those that fewer files and functions would not drop."""
    imports = (node for node in ast.walk(source.tree) if isinstance(node, ast.Import | ast.ImportFrom))
    skipped = {number for node in imports for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(source.text.splitlines(), 1)
    return [line for number, line in lines if line.strip() and number not in skipped]


def _docstring_signs(source: Source) -> int:
    documented = (node for node in ast.walk(source.tree) if isinstance(node, DOCUMENTED))
    return sum(len(ast.get_docstring(node, clean=False) or "") for node in documented)


def _lambdas(source: Source) -> int:
    return len(re.findall(r"\blambda\b", source.text))


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _words(file: Path) -> int:
    return len(file.read_text("utf-8").split())
