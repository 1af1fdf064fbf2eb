"""YAML and JSON documents as plain data, with the line number of every field for error messages."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any, NamedTuple, Protocol

import msgspec
import yaml

from cluster.errors import Mistake
from controller.api.rule import Path

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file, as plain data."""

    file: str
    number: int
    """Number of the document in its file, from 1; documents are separated by `---`."""
    content: Any
    within: Path = ()
    """Path of the object in its document, when that is a list of objects."""
    tree: Any = None
    """YAML nodes of the whole document, which have line numbers; None for JSON."""
    first_line: int = 0
    """Line where a JSON document after the first begins; 0 for the others."""

    @property
    def is_from_cluster(self) -> bool:
        """Whether an API server wrote the object: it has given it a uid."""
        metadata = self.content.get("metadata") if isinstance(self.content, Mapping) else None
        return isinstance(metadata, Mapping) and bool(metadata.get("uid"))

    def place(self, subject: str = "", path: Path = ()) -> str:
        """Place for an error message: `fleet.yaml, document 2 (line 14), GPUType/a100, spec.memory`."""
        line = _line(self.tree, (*self.within, *path)) or self.first_line
        parts = (
            f"{self.file}, document {self.number}" + (f" (line {line})" if line else ""),
            subject or dotted(self.within),
            dotted(path),
        )
        return ", ".join(part for part in parts if part)


def at(value: object, *path: str | int) -> Any:
    """Value at a path of plain data; None where there is nothing, or something else on the way."""
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            return None
    return value


def map_of(value: object) -> Mapping[str, Any]:
    """The value if it is a map; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def dotted(path: Path) -> str:
    """Readable form of a path: `spec.grid.inputTokens[2]`. Keys that contain dots are put in brackets, as in
    jsonpath."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f"['{part}']" if "." in part or "/" in part else f".{part}"
    return text.removeprefix(".")


class Readable(Protocol):
    """Text that is read once, such as standard input, or its bytes."""

    def read(self) -> str | bytes: ...


class ReadDocuments(NamedTuple):
    """What was found in files and folders."""

    documents: list[Document]
    mistakes: list[Mistake]
    empty: list[str]
    """Files without any object, such as one that holds only `---`."""


def read_documents(paths: Iterable[str], stdin: Readable | None = None) -> ReadDocuments:
    """All documents of these files and folders, in an order that depends only on the names, and the errors.

    A folder stands for all its .yaml, .yml and .json files at any depth; `-` stands for `stdin`. A file that is named
    twice is read once.
    """
    read = ReadDocuments([], [], [])
    seen: set[FilePath] = set()
    for path in paths:
        if path == STDIN:
            _collect("standard input", _from_stdin(stdin.read() if stdin is not None else ""), read)
            continue
        if "://" in path:
            words = "is a URL, and only files are read"
            read.mistakes.append(Mistake(path, words, f"curl -fsSL {path} | tonnage ... -f -"))
            continue
        for file in _files(FilePath(path), read.mistakes):
            if file.resolve() not in seen:
                seen.add(file.resolve())
                _collect(str(file), _from_file(file), read)
    return read


def _collect(name: str, found: Iterable[Document | Mistake], read: ReadDocuments) -> None:
    is_empty = True
    for each in found:
        is_empty = False
        if isinstance(each, Mistake):
            read.mistakes.append(each)
        else:
            read.documents.extend(_unlisted(each))
    if is_empty:
        read.empty.append(name)


def _files(path: FilePath, mistakes: list[Mistake]) -> list[FilePath]:
    if not path.exists():
        mistakes.append(Mistake(str(path), "there is no such file or folder"))
        return []
    if not path.is_dir():
        return [path]
    inside = (file.relative_to(path) for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    files = [path / file for file in sorted(inside) if not any(part.startswith(".") for part in file.parts)]
    if not files:
        mistakes.append(
            Mistake(str(path), "the folder contains no manifests", f"their names end in {', '.join(SUFFIXES)}")
        )
    return files


def _from_file(file: FilePath) -> Iterator[Document | Mistake]:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        yield Mistake(f"{file}, byte {error.start}", "is not UTF-8 text", "save the file as UTF-8")
    except OSError as error:
        yield Mistake(str(file), f"cannot be read: {error.strerror}")
    else:
        yield from _from_json(str(file), text) if file.suffix == ".json" else _from_text(str(file), text)


def _from_stdin(text: str | bytes) -> Iterator[Document | Mistake]:
    """Documents of standard input. A dump is not made into text before it is decoded: a fleet's has a gigabyte."""
    name = "standard input"
    if isinstance(text, bytes):
        if (dump := _dump_in(text)) is not None:
            yield Document(name, 1, dump)
            return
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            yield Mistake(f"{name}, byte {error.start}", "is not UTF-8 text", "save it as UTF-8")
            return
    yield from _from_text(name, text)


def _from_text(name: str, text: str) -> Iterator[Document | Mistake]:
    # JSON is valid YAML, but parsing `kubectl get -o json` of a fleet as YAML takes twenty times as long.
    return _from_json(name, text) if text.lstrip().startswith("{") else _from_yaml(name, text)


def _from_json(name: str, text: str) -> Iterator[Document | Mistake]:
    """Documents of a stream that begins with JSON, read as kubectl does.

    JSON values follow each other directly or after `---`. From the first document that is not JSON on, the stream is
    YAML, which may begin with `{` as well.
    """
    if (dump := _dump_in(text)) is not None:
        yield Document(name, 1, dump)
        return
    number, line, counted, at = 0, 1, 0, _after(_SPACE, text, 0)
    while at < len(text):
        line, counted = line + text.count("\n", counted, at), at
        repeated: list[str] = []
        try:
            content, end = json.JSONDecoder(object_pairs_hook=partial(_object_of, repeated)).raw_decode(text, at)
        except json.JSONDecodeError as error:
            yield from _from_yaml_or_json(name, text, (line, at), number, error)
            return
        number += 1
        yield from (
            Mistake(f"{name}, document {number}", f"the key {key!r} appears twice in one object", "keep one of them")
            for key in repeated
        )
        if not repeated:
            yield Document(name, number, content, first_line=line if number > 1 else 0)
        at = _after(_SPACE, text, _after(_SEPARATOR, text, _after(_SPACE, text, end)))


def _dump_in(text: str | bytes) -> Any:
    """List of objects that an API server wrote, which repeats no key: a fleet's is decoded in a fifth of the time.

    None: anything else, in which the keys are looked at one by one.
    """
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    items = at(content, "items")
    is_dump = isinstance(items, list) and items and all(at(each, "metadata", "uid") for each in items)
    return content if is_dump else None


_SPACE = re.compile(r"\s*")
_SEPARATOR = re.compile(r"---[ \t\r]*(?:#.*)?(?:\n|$)")
"""Line between two documents, without content of its own."""
_JSON_OBJECT = re.compile(r"""\{\s*(?:"|\}|$)""")
"""Start of an object in JSON; in YAML, names mostly have no quotes."""


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Position after the pattern, or the same position where it does not match."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _object_of(repeated: list[str], items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object of these fields; its repeated keys are noted."""
    made = dict(items)
    if len(made) < len(items):
        keys = [key for key, _ in items]
        repeated.extend(key for key in made if keys.count(key) > 1)
    return made


def _from_yaml_or_json(
    name: str, text: str, start: tuple[int, int], before: int, error: json.JSONDecodeError
) -> Iterator[Document | Mistake]:
    """Documents from a position on, as YAML; the error of JSON, where they are none and look like JSON.

    start: line and position. before: number of documents before it.
    """
    line, at = start
    column = at - (text.rfind("\n", 0, at) + 1)
    in_place = "\n" * (line - 1) + " " * column + text[at:]  # lines and columns stay those of the file
    found = list(_from_yaml(name, in_place, before))
    is_yaml = not any(isinstance(each, Mistake) and each.problem.startswith(NOT_YAML) for each in found)
    if is_yaml or not (_JSON_OBJECT.match(text, at) or name.endswith(".json")):
        yield from found
    else:
        yield Mistake(f"{name}, line {error.lineno}, column {error.colno}", f"is not JSON: {error.msg}")


NOT_YAML = "is not YAML"


def _from_yaml(name: str, text: str, before: int = 0) -> Iterator[Document | Mistake]:
    """Documents of YAML text. before: number of the file's documents before it."""
    loader = _Loader(text)
    number = before
    try:
        while loader.check_node():
            number += 1
            tree = loader.get_node()
            wrong = tuple(_tree_mistakes(tree, f"{name}, document {number}"))
            yield from wrong
            content = None if wrong else loader.construct_document(tree)
            if content is not None:
                yield Document(name, number, content, tree=tree)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        yield Mistake(f"{name}, document {max(number, 1)}{where}", f"{NOT_YAML}: {problem}")
    finally:
        loader.dispose()


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml where it is available
    """YAML loader with the plain values of YAML 1.2, so that `no`, `on`, `1:30`, `010` and dates stay text."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012  # PyYAML's own protocol


def _resolve(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), list(first))


_resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolve("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789")
_resolve("float", r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789")
_resolve("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.")
_resolve("null", "~|null|Null|NULL|", "~nN")
_Loader.yaml_implicit_resolvers.setdefault("", []).append(("tag:yaml.org,2002:null", re.compile("^$")))
_resolve("merge", "<<", "<")


_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))
_Loader.add_constructor(
    "tag:yaml.org,2002:float",
    lambda loader, node: float(loader.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan")),
)


def _tree_mistakes(tree: Any, place: str) -> Iterator[Mistake]:
    """Errors for duplicate keys of a mapping (the last would silently win), and for aliases that contain themselves."""
    done: set[int] = set()
    stack: list[tuple[Any, bool]] = [(tree, True)]
    open_nodes: set[int] = set()
    while stack:
        node, entering = stack.pop()
        if not entering:
            open_nodes.discard(id(node))
            continue
        if id(node) in open_nodes:
            yield Mistake(f"{place} (line {node.start_mark.line + 1})", "contains itself", "remove the alias")
        if id(node) in done:
            continue
        done.add(id(node))
        open_nodes.add(id(node))
        stack.append((node, False))
        if isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    yield Mistake(f"{place} (line {line})", "a key is not plain text", "keys of an object are text")
                elif key.value in first and key.value != "<<":
                    problem = f"the key {key.value!r} appears twice, first in line {first[key.value]}"
                    yield Mistake(f"{place} (line {line})", problem, "keep one of them")
                else:
                    first[key.value] = line
            stack.extend((value, True) for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            stack.extend((item, True) for item in node.value)


def _unlisted(document: Document) -> Iterator[Document]:
    """Objects of a `kind: List` (or NodeList, PodList, ...), or the document itself."""
    content, kind, items = document.content, at(document.content, "kind"), at(document.content, "items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        yield document
        return
    for n, item in enumerate(items):
        # In a typed list from the API server the items lack apiVersion and kind: the list implies them.
        typed = {"apiVersion": content.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
        whole = {**typed, **item} if isinstance(item, Mapping) else item
        yield from _unlisted(replace(document, content=whole, within=(*document.within, "items", n)))


def _line(tree: Any, path: Path) -> int | None:
    """Line of a field, or of the nearest enclosing field that exists; None for JSON."""
    if tree is None:
        return None
    line: int = tree.start_mark.line + 1
    for part in path:
        if isinstance(tree, yaml.MappingNode):
            match = next(((key, value) for key, value in tree.value if key.value == part), None)
        elif isinstance(tree, yaml.SequenceNode) and isinstance(part, int) and part < len(tree.value):
            match = (tree.value[part], tree.value[part])
        else:
            match = None
        if match is None:
            return line
        line, tree = match[0].start_mark.line + 1, match[1]
    return line
