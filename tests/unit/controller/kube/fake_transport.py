"""Fake transport that responds from a script, for tests of code that reads a cluster."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from controller.kube.request import KubeReadError, Query, Refusal


class ScriptOverError(Exception):
    """The script has no response left; this ends an endless reader."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Response to a read."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Watched:
    """Lines of a watch, and how it ends."""

    lines: tuple[bytes, ...] = ()
    broken: Refusal | None = None
    """Error that breaks the watch; None: the server ends it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Refusal of a read or a watch."""

    refusal: Refusal


@dataclass(slots=True)
class FakeTransport:
    """Responds to each request with the next step of the script, and records the requests in `asked`."""

    script: list[Listed | Watched | Refused]
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Requests so far, as (path, query)."""

    async def read(self, path: str, query: Query) -> bytes:
        step = self._next(path, query)
        if not isinstance(step, Listed):
            raise AssertionError(f"the script has {step} where {path} is read")
        return step.body

    async def watch(self, path: str, query: Query, *, idle_s: float) -> AsyncGenerator[bytes, None]:
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
