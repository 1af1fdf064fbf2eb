"""Bugs put into the operator as it is imported, to see that the engine finds them."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import yaml

from tests.mutation.mutations import ROOT, Mutation, mutated

FILE = Path(__file__).with_name("seeded_bugs.yaml")


@dataclass(frozen=True, slots=True)
class SeededBug:
    name: str
    edits: tuple[Mutation, ...]


def seeded_bugs() -> tuple[SeededBug, ...]:
    read: list[Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return tuple(
        SeededBug(each["bug"], tuple(Mutation(each["bug"], tests=(), **edit) for edit in each["edits"]))
        for each in read
    )


def broken_sources(bug: SeededBug) -> dict[str, str]:
    """Source by file, with the bug. Raises ValueError where its anchor is gone."""
    sources: dict[str, str] = {}
    for edit in bug.edits:
        sources[edit.file] = mutated(edit, sources.get(edit.file) or (ROOT / edit.file).read_text(encoding="utf-8"))
    return sources


def put_in(bug: SeededBug) -> None:
    """The bug is in what this process imports from now on, so it goes before any import of the operator."""
    sys.meta_path.insert(0, _Finder(broken_sources(bug)))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        file = name.replace(".", "/") + ".py"
        if file not in self._sources:
            return None
        loader = _Loader(name, str(ROOT / file), self._sources[file])
        return importlib.machinery.ModuleSpec(name, loader, origin=str(ROOT / file))


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles another source, and keeps no bytecode of it."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, _: str) -> CodeType:
        code: CodeType = compile(self._source, self.path, "exec", dont_inherit=True)
        return code
