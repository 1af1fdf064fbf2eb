"""Tasks and their results: what the operator wants to know and a cycle has no time for, as values."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module
from typing import Protocol

TaskFunction = Callable[..., bytes]
"""Function of a kind of task, from its inputs to its result, each as bytes.

It is pure: it may run twice, be ended halfway, and run on any machine.
"""


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """One call of the function of a kind. Two with the same digest have the same result."""

    kind: str
    inputs: tuple[bytes, ...]
    """Each is sent once, however many tasks have it in common."""
    parts: tuple[str, ...] = field(init=False)
    """Digests of the inputs."""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(digest_of(each) for each in self.inputs))
        object.__setattr__(self, "digest", digest_of(" ".join((self.kind, *self.parts)).encode()))


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Outcome of a task."""

    kind: str
    digest: str
    """Digest of the task."""
    value: bytes = b""
    error: str = ""
    """Why there is no value; empty when there is one."""


class Background(Protocol):
    """Where tasks are given to."""

    def submit(self, tasks: Iterable[BackgroundTask]) -> None:
        """Has these tasks run. One that is under way is not run twice, and a result that is still kept comes again."""
        ...

    def results(self, kind: str) -> list[TaskResult]:
        """Results of this kind since the last call."""
        ...


def digest_of(content: bytes) -> str:
    """Short name for exactly these bytes."""
    return blake2b(content, digest_size=16).hexdigest()


def function_of(registry: str, kind: str) -> TaskFunction:
    """Function of a kind in the `KINDS` of a module. Raises KeyError."""
    function: TaskFunction = import_module(registry).KINDS[kind]
    return function
