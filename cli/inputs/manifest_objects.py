"""Manifests of any kind as objects to send, checked as far as possible without the server."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from controller.objects.documents import Document

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as its manifest states it."""

    content: Object
    place: str
    """File, document and line, for error messages."""

    @property
    def api_version(self) -> str:
        return str(self.content["apiVersion"])

    @property
    def kind(self) -> str:
        return str(self.content["kind"])

    @property
    def name(self) -> str:
        return str(self.content["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        found = self.content["metadata"].get("namespace")
        return None if found is None else str(found)


def manifests_in(files: Sequence[str]) -> tuple[Manifest, ...]:
    """Objects of files and folders, in their order. Raises ConfigError with every error in all of them."""
    from controller.objects.documents import read_documents

    documents, mistakes, _ = read_documents(files, sys.stdin)
    made: list[Manifest] = []
    for document in documents:
        wrong = list(_mistakes(document))
        mistakes += wrong
        if not wrong:
            made.append(Manifest(dict(document.content), document.place()))
    if not documents and not mistakes:
        mistakes.append(Mistake(" ".join(files), "contains no objects", "name files or folders with manifests"))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return tuple(made)


def _mistakes(document: "Document") -> Sequence[Mistake]:
    from controller.api.kinds import OWN_KINDS, kind_of
    from controller.api.validation import pruned
    from controller.objects.read import checked

    content = document.content
    if not isinstance(content, Mapping):
        return (Mistake(document.place(), "is not an object", "write apiVersion, kind, metadata"),)
    missing = [field for field in ("apiVersion", "kind") if not isinstance(content.get(field), str)]
    if missing:
        return tuple(Mistake(document.place(path=(field,)), "is missing") for field in missing)
    metadata = content.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        return (Mistake(document.place(path=("metadata", "name")), "is missing", "give the object a name"),)
    kind = kind_of(content["apiVersion"], content["kind"])
    if kind not in OWN_KINDS or kind is None:
        return ()
    subject = f"{kind.name}/{metadata['name']}"
    return tuple(
        m
        for m in checked(pruned(content, kind.model), kind, lambda path: document.place(subject, path))
        if isinstance(m, Mistake)
    )
