"""Write to a Kubernetes API server as data, and the interface that sends it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from controller.kube.request import JSON, Body


@dataclass(frozen=True, slots=True)
class Write:
    """Write request as data; it is built without a connection, so that tests can read it."""

    method: str
    path: str
    body: Body | None = None
    content_type: str = JSON
    query: Mapping[str, str] = field(default_factory=dict)
    on_version_of_answer: bool = False
    """Whether its precondition is the object that the preceding write produced: the resourceVersion comes from the
    response to that write."""


class Writer(Protocol):
    """Part of a connection (`connection.Connection`) that writing needs."""

    async def read(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Response body of a GET. Raises KubeReadError."""
        ...

    async def write(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """Response body. Raises KubeWriteError, with status 0 when it is unknown whether the write took effect."""
        ...
