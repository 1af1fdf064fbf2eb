"""Manifests as objects to send, of whatever kind: each found right as far as can be known without the server."""

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
    """One object as somebody wrote it."""

    content: Object
    place: str
    """Where it stands, for whoever has to mend it."""

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
    """The objects of files and folders, in their order. Raises ConfigError with every mistake in every one."""
    from controller.objects.documents import read_documents

    documents, mistakes = read_documents(files, sys.stdin)
    made: list[Manifest] = []
    for document in documents:
        wrong = list(_mistakes(document))
        mistakes += wrong
        if not wrong:
            made.append(Manifest(dict(document.content), document.place()))
    if not documents and not mistakes:
        mistakes.append(Mistake(" ".join(files), "there is nothing to read", "name files or folders that hold objects"))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return tuple(made)


def _mistakes(document: "Document") -> Sequence[Mistake]:
    from controller.api.kinds import OWN_KINDS, kind_of
    from controller.api.pruning import pruned
    from controller.objects.read import checked

    content = document.content
    if not isinstance(content, Mapping):
        return (Mistake(document.place(), "is no object", "write apiVersion, kind, metadata"),)
    missing = [field for field in ("apiVersion", "kind") if not isinstance(content.get(field), str)]
    if missing:
        return tuple(Mistake(document.place(path=(field,)), "is missing") for field in missing)
    metadata = content.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        return (Mistake(document.place(path=("metadata", "name")), "is missing", "an applied object has a name"),)
    kind = kind_of(content["apiVersion"], content["kind"])
    if kind not in OWN_KINDS or kind is None:
        return ()
    who = f"{kind.name}/{metadata['name']}"
    return tuple(
        m
        for m in checked(pruned(content, kind.model), kind, lambda path: document.place(who, path))
        if isinstance(m, Mistake)
    )
