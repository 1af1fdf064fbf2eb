"""Requests to a Kubernetes API server, and what no response means."""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from ssl import SSLError

from controller.kube.request import JSON, ApiRequest, Body, KubeReadError, KubeWriteError, Query, Refusal


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """Response of the API server: body and headers."""

    body: bytes
    headers: Mapping[str, str]
    """Response headers, names in lower case."""


class RefusedError(Exception):
    """Refusal on its way to the method that knows whether the request was a read or a write."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.words)
        self.refusal = refusal


class RequestListener:
    """Receives what a connection notices; this one ignores it."""

    def requested(self, request: ApiRequest) -> None:
        """Called after each request, in the event loop, so it must return quickly."""

    def warned(self, text: str) -> None:
        """Called with the text of each Warning header in a response."""


IGNORING = RequestListener()

_VERBS = {"POST": "creating", "PUT": "replacing", "PATCH": "patching", "DELETE": "deleting"}


class ApiServer(ABC):
    """Reads, writes and watches. A client gives `send`, `watch` and `close`."""

    def __init__(self, host: str, namespace: str) -> None:
        self.host = host
        """Address of the server."""
        self.namespace = namespace
        """Namespace of the kubeconfig's context, or of the pod in which this process runs."""

    @abstractmethod
    async def send(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str, accept: str = JSON
    ) -> ApiResponse:
        """One request and its whole response; never retried where it may have taken effect. Raises RefusedError."""

    @abstractmethod
    def watch(self, path: str, query: Query, *, idle_s: float, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        """Lines of a watch, one JSON event each, until the server ends it. Close it (`aclosing`) when done.

        Raises KubeReadError when the watch breaks, or when nothing arrived for `idle_s`.
        """

    async def read(self, path: str, query: Query | None = None, accept: str = JSON) -> bytes:
        """Response body of a GET. Raises KubeReadError."""
        return (await self.read_whole(path, query, accept)).body

    async def read_whole(self, path: str, query: Query | None = None, accept: str = JSON) -> ApiResponse:
        """Response to a GET, with its headers. Raises KubeReadError."""
        try:
            return await self.send("GET", path, query or {}, None, JSON, accept)
        except RefusedError as refused:
            raise KubeReadError(f"reading {path}", refused.refusal) from refused.__cause__

    async def write(
        self, method: str, path: str, body: Body | None = None, query: Query | None = None, content_type: str = JSON
    ) -> bytes:
        """Response body of a POST, PUT, PATCH or DELETE. Raises KubeWriteError; no request is retried."""
        doing = f"{_VERBS[method]} {path}"
        try:
            return (await self.send(method, path, query or {}, body, content_type)).body
        except RefusedError as refused:
            raise KubeWriteError(doing, refused.refusal) from refused.__cause__


def no_connection(address: str, error: OSError) -> Refusal:
    """Refusal of a connection that could not be made. address: `HOST:PORT`."""
    if isinstance(error, SSLError):
        words = f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}"
    else:
        words = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return Refusal(0, "NoConnection", f"no answer from {address}: {words}")


def no_response(error: BaseException) -> Refusal:
    """Refusal of a request that was sent and not answered."""
    if isinstance(error, TimeoutError):
        return Refusal(0, "NoAnswer", "no answer within the time limit")
    return Refusal(0, "NoAnswer", f"no answer: {str(error) or type(error).__name__}")
