"""A transport that answers by a script, in place of a connection: for tests of whoever reads a cluster."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from controller.kube.errors import KubeReadError, Refusal
from controller.kube.request import Query


class ScriptOverError(Exception):
    """More was asked than the script answers: where an endless reader ends."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The answer to a read."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Watched:
    """What a watch says, and how it ends."""

    lines: tuple[bytes, ...] = ()
    broken: Refusal | None = None
    """None: the server ended it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a read or a watch that the server does not grant."""

    refusal: Refusal


@dataclass(slots=True)
class ScriptedTransport:
    """Answers with one step of the script per request, whatever is asked; `asked` tells what was."""

    script: list[Listed | Watched | Refused]
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """(path, query)."""

    async def read(self, path: str, query: Query) -> bytes:
        step = self._next(path, query)
        if not isinstance(step, Listed):
            raise AssertionError(f"the script has {step} where {path} is read")
        return step.body

    async def watch(self, path: str, query: Query, *, idle_s: float) -> AsyncGenerator[bytes, None]:  # noqa: ARG002  # a script is never idle
        step = self._next(path, {**query, "watch": "true"})
        if not isinstance(step, Watched):
            raise AssertionError(f"the script has {step} where {path} is watched")
        for line in step.lines:
            yield line
        if step.broken is not None:
            raise KubeReadError(f"watching {path}", step.broken)

    def _next(self, path: str, query: Query) -> Listed | Watched:
        if not self.script:
            raise ScriptOverError
        self.asked.append((path, dict(query)))
        step = self.script.pop(0)
        if isinstance(step, Refused):
            raise KubeReadError(f"reading {path}", step.refusal)
        return step
