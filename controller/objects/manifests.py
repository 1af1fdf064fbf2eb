"""Manifests: files as validated objects, or all their errors at once."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import msgspec

from cluster.errors import UNREADABLE, ConfigError, Mistake, meant
from cluster.plans import Reason
from cluster.workloads import LeftOut
from controller.api import core_v1, foreign_kinds, gpu_type, labels, rule, structs, validation
from controller.api.gpu_type import GPUType
from controller.api.kind import Kind
from controller.api.kinds import KINDS, kind_of, own_kinds
from controller.objects import pod_templates
from controller.objects.accelerators import accelerators_in
from controller.objects.documents import Document, Readable, at, read_documents
from controller.objects.read import Findings, GroupOwner, Note, PlainObject, Read, checked

BESIDE_PODS: Mapping[tuple[str, str], bool] = {
    ("v1", "Namespace"): False,
    ("v1", "PersistentVolume"): False,
    ("v1", "PersistentVolumeClaim"): True,
    ("v1", "ResourceQuota"): True,
    ("policy/v1", "PodDisruptionBudget"): True,
    ("scheduling.k8s.io/v1", "PriorityClass"): False,
    ("storage.k8s.io/v1", "CSINode"): False,
    ("storage.k8s.io/v1", "StorageClass"): False,
}
"""Kinds of Kubernetes that decide where pods may go, which of them, and whether at all; whether they are namespaced."""
CONCERN_NO_PLAN = frozenset({"Sandbox (agents.x-k8s.io/v1beta1)"})
"""Kinds for other parts of Tonnage, here isolation. A plan's document lists that they were ignored, and no command says
it, unless they ask for GPUs."""


_STRUCTS: Mapping[type, type[Any]] = {core_v1.NODE.model: structs.Node, core_v1.POD.model: structs.Pod}
"""Structs of the core/v1 kinds: the models only validate a manifest, which is then decoded as the API server's data."""


@dataclass(frozen=True, slots=True)
class Manifests:
    """All objects of the files from which plans are made."""

    by_kind: Mapping[Kind, tuple[Read[Any], ...]] = field(default_factory=dict)
    """Objects by kind, sorted by name, without kinds that have no objects."""
    notes: tuple[Note, ...] = ()
    owners: tuple[tuple[str, str, GroupOwner], ...] = ()
    """Objects of other projects' kinds that say how many pods start together: kind as `ForeignKind.called`, name, and
    what is written."""
    plain: tuple[PlainObject, ...] = ()
    """Objects of the kinds in BESIDE_PODS."""
    unread: tuple[LeftOut, ...] = ()
    """Workloads that ask for accelerators and of which no pods are planned."""

    @property
    def gpu_types(self) -> tuple[Read[GPUType], ...]:
        return self.by_kind.get(gpu_type.KIND, ())

    @property
    def nodes(self) -> tuple[Read[structs.Node], ...]:
        return self.by_kind.get(core_v1.NODE, ())

    @property
    def pods(self) -> tuple[Read[structs.Pod], ...]:
        return self.by_kind.get(core_v1.POD, ())

    def beside(self, kind: str) -> tuple[PlainObject, ...]:
        """Objects of one of the kinds in BESIDE_PODS, in the order of the files."""
        return tuple(each for each in self.plain if each.kind == kind)

    @property
    def all(self) -> Iterator[Read[Any]]:
        return (each for reads in self.by_kind.values() for each in reads)

    @property
    def own(self) -> Iterator[Read[Any]]:
        """Objects of Tonnage's kinds."""
        return (each for each in self.all if each.kind.is_own)


def read_manifests(paths: Iterable[str], stdin: Readable | None = None, kinds: Sequence[Kind] = KINDS) -> Manifests:
    """Objects of these files and folders; `-` reads `stdin`.

    Where there are nodes, Deployments, StatefulSets, Jobs, and other projects' kinds of such pods stand for the pods
    that their controllers would make. Objects of further kinds (a ConfigMap) are ignored with a note; those that ask
    for accelerators are workloads that have no place. An object without a name gets one, as from the API server.
    Raises ConfigError with all errors of all documents.
    """
    documents, mistakes, empty = read_documents(paths, stdin)
    documents = list(_named(documents))
    read: list[Read[Any]] = []
    ignored: Counter[Ignored] = Counter()
    owners: list[tuple[str, str, GroupOwner]] = []
    plain: list[PlainObject] = []
    unread: list[LeftOut] = []
    odd: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    contents = [document.content for document in documents if isinstance(document.content, Mapping)]
    makes_pods = any((each.get("apiVersion"), each.get("kind")) == ("v1", "Node") for each in contents)
    for document in documents:
        owners.extend(_group_objects(document.content))
        for each in _objects(document, kinds, makes_pods=makes_pods):
            if isinstance(each, Read):
                read.append(each)
            elif isinstance(each, Mistake) and document.is_from_cluster:
                # Another release of its kind may write it so: it costs itself alone.
                kind_name, metadata = str(at(document.content, "kind")), at(document.content, "metadata")
                name = "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))
                odd[kind_name, each.problem].append(name)
                if kind_name == core_v1.POD.name and not at(document.content, "spec", "nodeName"):
                    unread.append(LeftOut(name, "NotUnderstood", f"not placed, since it {each.problem}"))
            elif isinstance(each, Mistake):
                mistakes.append(each)
            elif isinstance(each, PlainObject):
                plain.append(each)
            elif isinstance(each, LeftOut):
                unread.append(each)
            else:
                ignored[each] += 1
    first: dict[str, Read[Any]] = {}
    for object_ in read:
        before = first.setdefault(object_.subject, object_)
        if before is not object_ and object_.is_from_cluster and before.is_from_cluster:
            first[object_.subject] = object_  # listed twice: as it was last
        elif before is not object_:
            problem = f"occurs a second time, first in {before.document.place() if before.document else 'the cluster'}"
            mistakes.append(object_.mistake(("metadata", "name"), problem, "keep one of them"))
    if not documents and not mistakes:
        mistakes.append(Mistake("manifests", "there is nothing to read", "name files or folders that hold objects"))
    read = with_priorities(first.values(), [each for each in plain if each.kind == "PriorityClass"], mistakes)
    if mistakes:
        raise ConfigError(tuple(mistakes))
    written = {(each.kind, each.name) for each in plain if not each.is_made}
    plain = [each for each in plain if not each.is_made or (each.kind, each.name) not in written]
    by_kind = {kind: tuple(sorted((r for r in read if r.kind is kind), key=lambda r: r.name)) for kind in kinds}
    notes = [Note(name, Reason("NoObjects", "holds no objects")) for name in empty]
    for what, count in sorted(ignored.items()):
        words = f"{count} object{'s' if count > 1 else ''} of this kind {_IGNORED_WORDS[what.code]}"
        notes.append(Note(what.kind, Reason(what.code, words, {"objects": count})))
    findings = Findings(notes)
    for (kind_name, problem), concerned in odd.items():
        findings.note_many(kind_name, "LeftOut", concerned, f"left out: {problem}")
    planned_from = {kind: reads for kind, reads in by_kind.items() if reads and kind.is_planned_from}
    return Manifests(planned_from, tuple(findings.notes), tuple(owners), tuple(plain), tuple(unread))


LONGEST_BASE = 58
"""Characters of a `generateName` that stay; five more make the name of it, as in the API server."""


def _named(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents, with a name for each object that has only a `generateName`: a number that its place decides."""
    counts: Counter[tuple[str, str]] = Counter()
    for document in documents:
        content, metadata = document.content, at(document.content, "metadata")
        prefix = at(metadata, "generateName")
        if isinstance(prefix, str) and not metadata.get("name"):
            counts[str(content.get("kind")), prefix] += 1
            name = f"{prefix[:LONGEST_BASE]}{counts[str(content.get('kind')), prefix]:05d}"
            rest = {key: value for key, value in metadata.items() if key != "generateName"}
            document = replace(document, content={**content, "metadata": {**rest, "name": name}})
        yield document


@dataclass(frozen=True, slots=True, order=True)
class Ignored:
    """Kind of an object of which nothing is planned."""

    kind: str
    code: str = "KindNotRead"


_IGNORED_WORDS = {
    "KindNotRead": "ignored: placement does not read it",
    "PodsReadInstead": "come from a cluster, where their pods are: those are planned if they are in the files",
    "NoNodes": "ignored: there is no Node among the files that their pods could be planned on",
}
"""Words about ignored objects, after "3 objects of this kind", by code."""


def _group_objects(content: object) -> Iterator[tuple[str, str, GroupOwner]]:
    """The object if it is one, or that which a controller makes of it."""
    if not isinstance(content, Mapping) or content.get("apiVersion") == "v1":
        return
    plain = validation.without_nulls(dict(content))
    metadata = plain.get("metadata")
    if not isinstance(metadata, Mapping):
        return
    namespace = metadata.get("namespace", "default")
    try:
        # On a cluster they are there themselves.
        derived = () if metadata.get("uid") else pod_templates.derived_from(plain)
    except ValueError:  # which is said of its pods
        return
    for each in derived:
        of_it = foreign_kinds.foreign_kind_of(each.api_version, each.kind)
        spec = at(plain, *each.spec) if each.made is None else each.made
        if of_it is not None:
            owner = GroupOwner(spec if isinstance(spec, Mapping) else {}, {})
            yield of_it.called, f"{namespace}/{each.name}", owner
    version, name = content.get("apiVersion"), content.get("kind")
    kind = foreign_kinds.foreign_kind_of(version, name) if isinstance(version, str) and isinstance(name, str) else None
    if kind is not None and not derived:
        maps = (part if isinstance(part := plain.get(of), Mapping) else {} for of in ("spec", "status"))
        yield kind.called, f"{namespace}/{metadata.get('name')}", GroupOwner(*maps)


Found = Read[Any] | PlainObject | LeftOut | Ignored | Mistake


def _objects(document: Document, kinds: Sequence[Kind], *, makes_pods: bool) -> Iterator[Found]:
    """Object of a document, or its errors, or the pods that are made of it, or what is not planned of it."""
    content = document.content
    if not isinstance(content, Mapping):
        what = {list: "a list", str: "text", bool: "true or false"}.get(type(content), "a number")
        yield Mistake(document.place(), f"is {what}, not an object", "write apiVersion, kind, metadata")
        return
    version, name = content.get("apiVersion"), content.get("kind")
    if not isinstance(version, str) or not isinstance(name, str):
        missing = "apiVersion" if not isinstance(version, str) else "kind"
        yield Mistake(
            document.place(path=(missing,)), "is missing", f"Tonnage's kinds have apiVersion: {labels.API_VERSION}"
        )
        return
    kind = kind_of(version, name, kinds)
    if (version, name) in BESIDE_PODS:
        yield _plain(document, is_namespaced=BESIDE_PODS[version, name])
    elif kind is not None:
        yield from _validated(document, kind)
        if kind is core_v1.POD and not document.is_from_cluster:
            yield from _made_claims(document)
    elif pod_templates.has_templates(content):
        yield from _made_pods(document, makes_pods=makes_pods)
    elif foreign_kinds.foreign_kind_of(version, name) is None:
        yield _misnamed(version, name, document, kinds) or _not_planned(content, "KindNotRead")


def _plain(document: Document, *, is_namespaced: bool) -> PlainObject | Mistake:
    """An object of a kind in BESIDE_PODS."""
    content = validation.without_nulls(document.content)
    name = at(content, "metadata", "name")
    if not name:
        return Mistake(document.place(path=("metadata", "name")), "is missing", "")
    within = f"{content['metadata'].get('namespace', 'default')}/" if is_namespaced else ""
    return PlainObject(content["kind"], f"{within}{name}", content, document)


_NOT_PLANNED = {
    "KindNotRead": "placement does not know what pods are made of it; add its pods",
    "NoNodes": "there is no Node among the files; add the nodes of the fleet",
    "Suspended": "it is suspended: its pods are made once it is resumed",
}
"""Why no pod of a workload is planned, by code."""


def _not_planned(content: Mapping[str, Any], code: str) -> LeftOut | Ignored:
    """A workload that has no place, where an object asks for accelerators, and else an object that is ignored.

    Of an object from a cluster, the pods are there; if they wait, they are in the files.
    """
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    asked = accelerators_in(content)
    if not asked or "uid" in metadata:
        return Ignored(f"{content['kind']} ({content['apiVersion']})", "PodsReadInstead" if asked else code)
    within = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    words = ", ".join(f"{resource}: {amount}" for resource, amount in asked.items())
    name = f"{within}{metadata.get('name', '(no name)')}"
    return LeftOut(name, code, f"asks for {words}; {_NOT_PLANNED[code]}", kind=content["kind"])


def _made_claims(document: Document, owner: Mapping[str, Any] | None = None) -> Iterator[PlainObject]:
    """Claims that controllers would make for the pod of a document."""
    pod = validation.without_nulls(document.content)
    if at(pod, "metadata", "name"):
        for claim in pod_templates.claims_of(pod, owner):
            name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
            yield PlainObject(claim["kind"], name, claim, document, is_made=True)


def _made_pods(document: Document, *, makes_pods: bool) -> Iterator[Found]:
    """Pods that a controller would make of an object. One from a cluster has its pods there."""
    content = validation.without_nulls(document.content)
    called = f"{content['kind']} ({content['apiVersion']})"
    if not at(content, "metadata", "name"):
        yield Mistake(document.place(path=("metadata", "name")), "is missing", "")
        return
    if document.is_from_cluster:
        yield Ignored(called, "PodsReadInstead")
        return
    if not makes_pods or (pod_templates.is_suspended(content) and accelerators_in(content)):
        yield _not_planned(content, "Suspended" if makes_pods else "NoNodes")
        return
    subject = f"{content['kind']}/{_name_in(content, core_v1.POD)}"
    wrong: set[rule.Path] = set()
    try:
        for number, member in enumerate(pod_templates.members_of(content)):
            if number == pod_templates.MOST_PODS:
                raise ValueError(
                    f"makes more than {pod_templates.MOST_PODS:,} pods, more than a plan of files is meant for"
                )
            if member.template in wrong:
                continue
            pod = pod_templates.with_templates(pod_templates.pod_from(content, member), content)
            made = replace(document, content=pod, within=(*document.within, *member.template))
            yield from _made_claims(made, content)
            for each in _validated(made, core_v1.POD):
                wrong |= {member.template} if isinstance(each, Mistake) else set()
                yield each
    except ValueError as error:
        yield Mistake(document.place(subject, ("spec",)), str(error))


def _misnamed(version: str, name: str, document: Document, kinds: Sequence[Kind]) -> Mistake | None:
    """Error in a misspelt kind or apiVersion that resembles one that is read; None for kinds of other projects."""
    if version.startswith(labels.API_VERSION.partition("/")[0]) and version != labels.API_VERSION:
        return Mistake(document.place(path=("apiVersion",)), f"is {version}", f"write {labels.API_VERSION}")
    if version == labels.API_VERSION:
        words = meant(name, (k.name for k in own_kinds(kinds)))
        return Mistake(document.place(path=("kind",)), f"there is no kind {name}", words)
    lower = {k.name.lower(): k for k in kinds}
    alike = lower.get(name.lower())
    if alike and (alike.is_own or version == "v1"):
        words = f"write apiVersion: {alike.api_version}, kind: {alike.name}"
        return Mistake(document.place(path=("apiVersion",)), f"{name} is not of {version}", words)
    if version == "v1" and name.lower().removesuffix("s") in lower:
        return Mistake(document.place(path=("kind",)), f"there is no kind {name}", meant(name, (k.name for k in kinds)))
    return None


def _validated(document: Document, kind: Kind) -> Iterator[Read[Any] | Mistake]:
    struct = _STRUCTS.get(kind.model)
    is_live = document.is_from_cluster  # the API server has validated it, maybe one of a later release
    if struct and is_live:
        with suppress(*UNREADABLE):  # else it has nulls, or is odd
            yield Read(structs.object_from(document.content, struct), kind, document)
            return
    content = (validation.known_part if is_live else validation.pruned)(document.content, kind.model)
    subject = f"{kind.name}/{_name_in(content, kind)}"
    if struct and is_live:
        try:
            yield Read(structs.object_from(content, struct), kind, document)
        except UNREADABLE as error:
            yield Mistake(document.place(subject), f"cannot be read: {error}")
        return
    made, mistakes = checked(content, kind, lambda path: document.place(subject, path))
    yield from mistakes
    if made is None or (mistakes and is_live):
        return
    read: Read[Any] = Read(structs.object_from(content, struct) if struct else made, kind, document)
    if not kind.is_namespaced and "namespace" in made.metadata.model_fields_set:
        yield read.mistake(("metadata", "namespace"), f"a {kind.name} has no namespace", "remove the line")
    yield read


def _name_in(content: Mapping[str, Any], kind: Kind) -> str:
    """Name for messages of an object that may be invalid anywhere."""
    name = str(at(content, "metadata", "name") or "(no name)")
    return f"{at(content, 'metadata', 'namespace') or 'default'}/{name}" if kind.is_namespaced else name


def with_priorities(
    read: Iterable[Read[Any]], written: Iterable[PlainObject], mistakes: list[Mistake]
) -> list[Read[Any]]:
    """The objects, where pods without a priority have that of their class, or of the class that is the default.

    written: PriorityClasses. A class that cannot be read is a mistake. Of several defaults the lowest counts.
    Source: Kubernetes documentation, "Pod Priority and Preemption"; its admission plugin Priority.
    """
    classes: dict[str, tuple[int, str]] = {}
    """(value, preemption policy) by name."""
    defaults: list[tuple[int, str]] = []
    for each in written:
        value = each.content.get("value", 0)
        if isinstance(value, bool) or not isinstance(value, int):
            place = each.document.place(f"PriorityClass/{each.name}", ("value",))
            mistakes.append(Mistake(place, f"is {value!r}", "write a whole number"))
            continue
        made = classes[each.name] = value, str(each.content.get("preemptionPolicy") or "PreemptLowerPriority")
        defaults += [made] if each.content.get("globalDefault") is True else []
    if not classes:
        return list(read)
    default = min(defaults, key=itemgetter(0), default=None)

    def resolved(one: Read[Any]) -> Read[Any]:
        if not isinstance(one.object, structs.Pod) or one.object.spec.priority is not None:
            return one
        spec = one.object.spec
        found = classes.get(spec.priority_class_name) if spec.priority_class_name else default
        if found is None:
            return one
        value, policy = found
        spec = msgspec.structs.replace(spec, priority=value, preemption_policy=spec.preemption_policy or policy)
        return replace(one, object=msgspec.structs.replace(one.object, spec=spec))

    return [resolved(each) for each in read]
