"""What an API server says when it refuses or warns, and the errors that carry it to who can do something."""

from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from cluster.errors import ActionError, ObservationError
from controller.api.labels import GROUP

NOT_INSTALLED = "Tonnage's kinds are not installed: kubectl apply --server-side -f deploy/crds, or install the chart"
_NOT_SERVED = b"404 page not found"
"""What an API server says of a path that no group and no resource of it has; not of an object that is not there."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request did not do what it was sent for."""

    status: int
    """HTTP status; 0 when no answer came."""
    reason: str
    """The API server's word for it: `NotFound`, `Conflict`, `Expired`; `NoAnswer` when none came."""
    words: str
    retry_after_s: float | None = None
    """How long the server asks to be left alone."""
    causes: tuple["Cause", ...] = ()
    """What is wrong field by field, where the server says so."""


class Cause(msgspec.Struct, frozen=True):
    """One reason of a refusal, of meta/v1 StatusCause."""

    reason: str = ""
    message: str = ""
    field: str = ""


class KubeReadError(ObservationError):
    """Something could not be read."""

    def __init__(self, doing: str, refusal: Refusal) -> None:
        super().__init__(f"{doing}: {refusal.words}")
        self.refusal = refusal


class KubeWriteError(ActionError):
    """Something could not be written. `NoAnswer` leaves open whether it was: the watch tells."""

    def __init__(self, doing: str, refusal: Refusal) -> None:
        super().__init__(f"{doing}: {refusal.words}")
        self.refusal = refusal


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: tuple[Cause, ...] = ()


class Status(msgspec.Struct):
    """meta/v1 Status: how the API server says what went wrong, as an answer and inside a watch."""

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
    """What an answer says that is no success: a Status, or the plain words of a proxy, an authoriser or the server."""
    try:
        return msgspec.json.decode(body, type=Status).refusal(status)
    except msgspec.MsgspecError:
        said = body[:200].decode(errors="replace").strip()
    if status == HTTPStatus.NOT_FOUND and body.strip() == _NOT_SERVED:
        remedy = f"; {NOT_INSTALLED}" if f"/apis/{GROUP}/" in path else ""
        return Refusal(status, "NotFound", f"the server serves no {path}{remedy}")
    return Refusal(status, "Unknown", f"status {status}: {said}")


def warning_text(header: str) -> str:
    """The words of a Warning header, `299 - "use v2"`. Source: RFC 7234, section 5.5."""
    _, quote, rest = header.partition('"')
    text, end, _ = rest.rpartition('"')
    return text.replace('\\"', '"') if quote and end else header
