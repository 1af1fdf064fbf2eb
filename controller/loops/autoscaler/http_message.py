"""HTTP requests and responses of the autoscaler's servers, without their sockets."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """Request, as handlers read it."""

    method: str
    path: str
    """Path with percent signs decoded."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case; values of a repeated header are joined by line breaks."""
    body: bytes = b""
    client: Mapping[str, str] = field(default_factory=dict)
    """Subject of the client's verified certificate, such as `commonName`; empty: it showed none."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


Handler = Callable[[Request], Awaitable[Response]]
