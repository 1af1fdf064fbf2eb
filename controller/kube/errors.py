"""Refusals and warnings of an API server, and the errors that carry them to the code that can act on them."""

from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from cluster.errors import ActionError, ObservationError
from controller.api.labels import GROUP

NOT_INSTALLED = (
    "Tonnage's kinds are not installed: tonnage crds | kubectl apply --server-side -f -, or install the chart"
)
_NOT_SERVED = b"404 page not found"
"""Response body for a path that belongs to no API group or resource; a missing object gets a Status instead."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a request failed."""

    status: int
    """HTTP status; 0 without a response."""
    reason: str
    """Reason code of the API server: `NotFound`, `Conflict`, `Expired`; `NoAnswer` without a response."""
    words: str
    retry_after_s: float | None = None
    """Time after which the server accepts a retry, seconds."""
    causes: tuple["Cause", ...] = ()
    """Invalid fields, where the server reports them."""


class Cause(msgspec.Struct, frozen=True):
    """One cause of a refusal, as in meta/v1 StatusCause."""

    reason: str = ""
    message: str = ""
    field: str = ""


class KubeReadError(ObservationError):
    """A read failed."""

    def __init__(self, doing: str, refusal: Refusal) -> None:
        super().__init__(f"{doing}: {refusal.words}")
        self.refusal = refusal


class KubeWriteError(ActionError):
    """A write failed. With `NoAnswer` it is unknown whether the write took effect; the watch will show."""

    def __init__(self, doing: str, refusal: Refusal) -> None:
        super().__init__(f"{doing}: {refusal.words}")
        self.refusal = refusal


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: tuple[Cause, ...] = ()


class Status(msgspec.Struct):
    """meta/v1 Status, with which the API server reports an error, as a response or inside a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None

    def refusal(self, status: int) -> Refusal:
        wait_s = self.details.retry_after_seconds if self.details else None
        causes = self.details.causes if self.details else ()
        words = self.message or f"status {status}"
        return Refusal(self.code or status, self.reason or "Unknown", words, wait_s, causes)


def refusal_of(status: int, path: str, body: bytes) -> Refusal:
    """Refusal in an unsuccessful response: a Status, or plain text of a proxy, an authoriser or the server."""
    try:
        return msgspec.json.decode(body, type=Status).refusal(status)
    except msgspec.MsgspecError:
        text = body[:200].decode(errors="replace").strip()
    if status == HTTPStatus.NOT_FOUND and body.strip() == _NOT_SERVED:
        remedy = f"; {NOT_INSTALLED}" if f"/apis/{GROUP}/" in path else ""
        return Refusal(status, "NotFound", f"the server serves no {path}{remedy}")
    return Refusal(status, "Unknown", f"status {status}: {text}")


def warning_text(header: str) -> str:
    """Text of a Warning header, `299 - "use v2"`. Source: RFC 7234, section 5.5."""
    _, quote, rest = header.partition('"')
    text, end, _ = rest.rpartition('"')
    return text.replace('\\"', '"') if quote and end else header
