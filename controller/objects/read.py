"""Objects with their origin, a file or the cluster, so that every error names its place."""

from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import ValidationError

from cluster.errors import ConfigError, Mistake
from cluster.plans import Reason
from controller.api.kind import Kind
from controller.api.rule import Path
from controller.api.validation import mistake_from
from controller.objects.documents import Document, dotted


class Metadata(Protocol):
    """Name and namespace of an object."""

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str: ...


class NamedObject(Protocol):
    """Object of any kind: a model of `controller/api`, or a struct of `controller/kube`."""

    @property
    def metadata(self) -> Metadata: ...


Object = TypeVar("Object", bound=NamedObject)


@dataclass(frozen=True, slots=True)
class Read(Generic[Object]):
    """Object with its kind and origin."""

    object: Object
    kind: Kind
    document: Document | None = None
    """Document that it was read from; None: the cluster."""

    @property
    def name(self) -> str:
        """`name`, or `namespace/name` where the kind has namespaces."""
        metadata = self.object.metadata
        return f"{metadata.namespace}/{metadata.name}" if self.kind.is_namespaced else metadata.name

    @property
    def subject(self) -> str:
        """Kind and name: `ModelService/chat/llama`."""
        return f"{self.kind.name}/{self.name}"

    @property
    def is_from_cluster(self) -> bool:
        return self.document is None or self.document.is_from_cluster

    def mistake(self, path: Path, problem: str, remedy: str = "") -> Mistake:
        return Mistake(self.place(path), problem, remedy)

    def unreadable(self, error: Exception) -> Mistake:
        """Mistake for an object that no check refuses and that still cannot be converted, which is a bug."""
        return unreadable(self.place(), error)

    def place(self, path: Path = ()) -> str:
        return (
            place_in_cluster(self.subject, path) if self.document is None else self.document.place(self.subject, path)
        )


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def put(index: MutableMapping[Key, Value], name: Key, value: Value | None) -> bool:
    """Puts an entry into an index, in place of the one before; None: out of it. Whether that changed it."""
    before = index.pop(name, None)
    if value is not None:
        index[name] = value
    return before != value


@dataclass(frozen=True, slots=True)
class PlainObject:
    """Object of a kind of Kubernetes that only decides where pods may go, as it is written, without nulls."""

    kind: str
    name: str
    """`name`, or `namespace/name` where the kind has namespaces."""
    content: Mapping[str, Any]
    document: Document
    is_made: bool = False
    """Whether a controller would make it; one that is written counts instead."""


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """Object that states the size of a group, as plain data without nulls. Anything may stand in it."""

    spec: Mapping[str, Any]
    status: Mapping[str, Any]


def unreadable(place: str, error: Exception) -> Mistake:
    """Mistake for an object that raises an error, without the error's text, which may hold what its author wrote."""
    problem = f"cannot be read: {type(error).__name__}"
    return Mistake(place, problem, "this is a bug of Tonnage; `tonnage bundle` collects what its report needs")


def place_in_cluster(subject: str, path: Path = ()) -> str:
    """Place for an error message: `ModelService/chat/llama, spec.demand`."""
    return ", ".join(part for part in (subject, dotted(path)) if part)


@dataclass(frozen=True, slots=True)
class Note:
    """Note for the reader of a plan; unlike an error, it stops nothing."""

    about: str
    """Subject: `Node/gpu-1`, `Gang/default/train`, or a file."""
    reason: Reason

    def __str__(self) -> str:
        return f"{self.about}: {self.reason.words}"


def checked(content: Any, kind: Kind, place_of: Callable[[Path], str]) -> tuple[Any, list[Mistake]]:
    """The object, None unless each field on its own is valid, and all its errors."""
    try:
        made = kind.model.model_validate(content)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        deeper = {wrong["loc"][:depth] for wrong in errors for depth in range(len(wrong["loc"]))}
        # A list may be too short only because its items are invalid themselves.
        told = (wrong for wrong in errors if wrong["type"] != "too_short" or wrong["loc"] not in deeper)
        return None, [mistake_from(wrong, place_of, kind.model) for wrong in told]
    return made, [Mistake(place_of(flaw.path), flaw.problem, flaw.remedy) for flaw in kind.flaws(made)]


class Findings:
    """Collects errors and notes until all input is checked, so that its author sees all of them at once."""

    def __init__(self, notes: Sequence[Note] = ()) -> None:
        self.mistakes: list[Mistake] = []
        self._notes = list(notes)

    def mistake(self, mistake: Mistake) -> None:
        self.mistakes.append(mistake)

    def refuse(self, found: "Read[Any] | PlainObject", mistake: Mistake) -> None:
        """Add an error of a manifest; an object that a cluster has so is left out, with a note."""
        if found.document is None or found.document.is_from_cluster:
            kind = found.kind if isinstance(found, PlainObject) else found.kind.name
            self.note(f"{kind}/{found.name}", "LeftOut", f"is left out: {mistake.problem}")
        else:
            self.mistakes.append(mistake)

    def note(self, about: str, code: str, words: str, figures: Mapping[str, float] | None = None) -> None:
        self._notes.append(Note(about, Reason(code, words, figures or {})))

    def note_many(self, kind: str, code: str, names: Sequence[str], words: str) -> None:
        """Add one note that holds for many objects, so that a large fleet does not flood the output.

        words: continue a sentence whose subject is the objects, such as "12 pods".
        """
        if names:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.note(f"{kind}/{min(names)}{others}", code, words, {"objects": len(names)})

    def extend(self, more: "Findings") -> None:
        self.mistakes += more.mistakes
        self._notes += more.notes

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._notes)

    def stop_on_mistakes(self) -> None:
        """Raises ConfigError with all errors, if there are any."""
        if self.mistakes:
            raise ConfigError(tuple(self.mistakes))
