"""One write to a Kubernetes API server, and the border behind which it is sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from controller.kube.request import JSON


@dataclass(frozen=True, slots=True)
class Write:
    """What is to be sent, as data: made without a connection, so that tests read it."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    content_type: str = JSON
    query: Mapping[str, str] = field(default_factory=dict)
    on_version_of_answer: bool = False
    """Whether it is for the object as the write before it left it: its resourceVersion comes from that answer."""


class Writer(Protocol):
    """What writing needs of a connection (`kube_connection.Connection`)."""

    async def read(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The body of a GET. Raises KubeReadError."""
        ...

    async def write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """The body of the answer. Raises KubeWriteError, of status 0 when it is unknown whether it took effect."""
        ...
