"""Manifests: files as validated objects, or all their errors at once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from cluster.errors import ConfigError, Mistake
from cluster.plans import Reason
from controller.api import gang, gpu_type, model_profile, model_service, node, pod
from controller.api.gang import Gang
from controller.api.gpu_type import GPUType
from controller.api.kind import Kind
from controller.api.kinds import KINDS, kind_of, own_kinds
from controller.api.labels import API_VERSION
from controller.api.model_profile import ModelProfile
from controller.api.model_service import ModelService
from controller.api.pruning import pruned
from controller.api.suggestions import meant
from controller.kube.structs import Node, Pod, object_from
from controller.objects.documents import Document, read_documents
from controller.objects.read import Note, Read, checked

SILENTLY_IGNORED = frozenset({("scheduling.k8s.io/v1", "PriorityClass")})
"""Kinds that are ignored without a note: the API server writes the priority of the class into each pod."""


_STRUCTS: Mapping[type, type[Any]] = {node.KIND.model: Node, pod.KIND.model: Pod}
"""Structs of the core/v1 kinds: the models only validate a manifest, which is then decoded as the API server's data."""


@dataclass(frozen=True, slots=True)
class Manifests:
    """All objects of the files from which plans are made."""

    by_kind: Mapping[Kind, tuple[Read[Any], ...]] = field(default_factory=dict)
    """Objects by kind, sorted by name, without kinds that have no objects."""
    notes: tuple[Note, ...] = ()

    @property
    def gpu_types(self) -> tuple[Read[GPUType], ...]:
        return self.by_kind.get(gpu_type.KIND, ())

    @property
    def profiles(self) -> tuple[Read[ModelProfile], ...]:
        return self.by_kind.get(model_profile.KIND, ())

    @property
    def services(self) -> tuple[Read[ModelService], ...]:
        return self.by_kind.get(model_service.KIND, ())

    @property
    def gangs(self) -> tuple[Read[Gang], ...]:
        return self.by_kind.get(gang.KIND, ())

    @property
    def nodes(self) -> tuple[Read[Node], ...]:
        return self.by_kind.get(node.KIND, ())

    @property
    def pods(self) -> tuple[Read[Pod], ...]:
        return self.by_kind.get(pod.KIND, ())

    @property
    def own(self) -> Iterator[Read[Any]]:
        """Objects of Tonnage's kinds."""
        return (each for kind, reads in self.by_kind.items() if kind.is_own for each in reads)


def read_manifests(paths: Iterable[str], stdin: TextIO | None = None, kinds: Sequence[Kind] = KINDS) -> Manifests:
    """Objects of these files and folders; `-` reads `stdin`.

    Objects of other kinds (a Deployment, a ConfigMap) are ignored with a note. Raises ConfigError with all errors of
    all documents.
    """
    documents, mistakes = read_documents(paths, stdin)
    read: list[Read[Any]] = []
    ignored: Counter[str] = Counter()
    for document in documents:
        for each in _objects(document, kinds):
            match each:
                case Read():
                    read.append(each)
                case Mistake():
                    mistakes.append(each)
                case str():
                    ignored[each] += 1
    mistakes.extend(_repeated_names(read))
    if not documents and not mistakes:
        mistakes.append(Mistake("manifests", "there is nothing to read", "name files or folders that hold objects"))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    by_kind = {kind: tuple(sorted((r for r in read if r.kind is kind), key=lambda r: r.name)) for kind in kinds}
    return Manifests(
        {kind: reads for kind, reads in by_kind.items() if reads and kind.is_planned_from},
        tuple(_notes_of_ignored(ignored)),
    )


def _notes_of_ignored(counts: Counter[str]) -> Iterator[Note]:
    for what, count in sorted(counts.items()):
        words = f"{count} object{'s' if count > 1 else ''} of this kind ignored: placement does not read it"
        yield Note(what, Reason("KindNotRead", words, {"objects": count}))


def _objects(document: Document, kinds: Sequence[Kind]) -> Iterator[Read[Any] | Mistake | str]:
    """Object of a document, or its errors, or the name of a kind that is not read."""
    content = document.content
    if not isinstance(content, Mapping):
        yield Mistake(
            document.place(), f"is {_kind_of_data(content)}, not an object", "write apiVersion, kind, metadata"
        )
        return
    version, name = content.get("apiVersion"), content.get("kind")
    if not isinstance(version, str) or not isinstance(name, str):
        missing = "apiVersion" if not isinstance(version, str) else "kind"
        yield Mistake(document.place(path=(missing,)), "is missing", f"Tonnage's kinds have apiVersion: {API_VERSION}")
        return
    kind = kind_of(version, name, kinds)
    if (version, name) in SILENTLY_IGNORED:
        return
    if kind is None:
        wrong = _misnamed(version, name, document, kinds)
        yield wrong or f"{name} ({version})"
        return
    yield from _validated(document, kind)


def _misnamed(version: str, name: str, document: Document, kinds: Sequence[Kind]) -> Mistake | None:
    """Error in a misspelt kind or apiVersion that resembles one that is read; None for kinds of other projects."""
    if version.startswith(API_VERSION.partition("/")[0]) and version != API_VERSION:
        return Mistake(document.place(path=("apiVersion",)), f"is {version}", f"write {API_VERSION}")
    if version == API_VERSION:
        return Mistake(
            document.place(path=("kind",)), f"there is no kind {name}", meant(name, (k.name for k in own_kinds(kinds)))
        )
    lower = {k.name.lower(): k for k in kinds}
    alike = lower.get(name.lower())
    if alike and (alike.is_own or version == "v1"):
        place = document.place(path=("apiVersion",))
        return Mistake(
            place, f"{name} is not of {version}", f"write apiVersion: {alike.api_version}, kind: {alike.name}"
        )
    if version == "v1" and name.lower().removesuffix("s") in lower:
        return Mistake(document.place(path=("kind",)), f"there is no kind {name}", meant(name, (k.name for k in kinds)))
    return None


def _validated(document: Document, kind: Kind) -> Iterator[Read[Any] | Mistake]:
    content = pruned(document.content, kind.model)
    subject = f"{kind.name}/{_name_in(content, kind)}"
    made: Any = None
    for each in checked(content, kind, lambda path: document.place(subject, path)):
        if isinstance(each, Mistake):
            yield each
        else:
            made = each
    if made is None:
        return
    struct = _STRUCTS.get(kind.model)
    read: Read[Any] = Read(object_from(content, struct) if struct else made, kind, document)
    if not kind.is_namespaced and "namespace" in made.metadata.model_fields_set:
        yield read.mistake(("metadata", "namespace"), f"a {kind.name} has no namespace", "remove the line")
    yield read


def _name_in(content: Mapping[str, Any], kind: Kind) -> str:
    """Name for messages of an object that may be invalid anywhere."""
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = str(metadata.get("name", "(no name)"))
    return f"{metadata.get('namespace', 'default')}/{name}" if kind.is_namespaced else name


def _repeated_names(read: Iterable[Read[Any]]) -> Iterator[Mistake]:
    first: dict[str, Read[Any]] = {}
    for each in read:
        if each.subject in first:
            origin = first[each.subject].document
            before = origin.place() if origin else "the cluster"
            yield each.mistake(("metadata", "name"), f"occurs a second time, first in {before}", "keep one of them")
        first.setdefault(each.subject, each)


def _kind_of_data(value: object) -> str:
    return {list: "a list", str: "text", bool: "true or false"}.get(type(value), "a number")
