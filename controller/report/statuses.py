"""What all statuses of Tonnage's objects share: the condition Accepted, their writes, and what was written last."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from cluster.errors import ActionError, Mistake
from cluster.plans import Reason
from controller.api import conditions
from controller.api.kind import Kind
from controller.api.structs import OwnObject
from controller.api.validation import words_of
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Applier, Write, WriteJob

log = structlog.get_logger(__name__)

STATUS_MANAGER = "tonnage-status"
Status = Mapping[str, Any]
"""Status as plain data."""


def accepted(mistaken: Sequence[Mistake]) -> conditions.Claim:
    """The condition Accepted of an object with these errors."""
    if mistaken:
        return conditions.ACCEPTED, "False", Reason(conditions.BAD_INPUT, words_of(mistaken))
    return conditions.ACCEPTED, "True", Reason("Valid", "its fields and the objects that it names are valid")


def status_job(kind: Kind, name: str, obj: OwnObject, status: Status) -> WriteJob:
    """Server-side apply of a status to this object, not to a newer one of the same name.

    name: `name`, or `namespace/name` where the kind has namespaces.
    """
    namespace, _, bare = name.rpartition("/")
    metadata = {"name": bare, "uid": obj.metadata.uid} | ({"namespace": namespace} if kind.is_namespaced else {})
    body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "status": status}
    query = {"fieldManager": STATUS_MANAGER, "force": "true"}
    return WriteJob(f"{kind.name}/{name}", Write("PATCH", f"{kind.path_of(name)}/status", body, APPLY_PATCH, query))


Job = TypeVar("Job")


def each_alone(kind: str, name: str, jobs: Iterator[Job]) -> Iterator[Job]:
    """The writes of one object; none, and a line in the log, where its status cannot be computed."""
    try:
        yield from tuple(jobs)
    except Exception:  # one object must not stop the others
        log.exception("a status could not be computed", subject=f"{kind}/{name}")


def log_unwritten(about: str, error: ActionError) -> None:
    """Log that a status, or another report, could not be written."""
    log.warning("a report was not written; it is tried again soon", about=about, why=str(error))


class WrittenStatuses:
    """Statuses that were written last, each until the watch shows a newer version than the one it was based on."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}
        """Object → its resourceVersion at the write, and the status."""

    def before(self, about: str, obj: OwnObject) -> dict[str, Any]:
        """The present status of an object, by the last write where the watch does not show that yet."""
        version, status = self._written.get(about, ("", {}))
        if version == obj.metadata.resource_version:
            return status
        shown: dict[str, Any] = msgspec.json.decode(obj.status)
        return shown

    def put(self, about: str, obj: OwnObject, status: dict[str, Any]) -> None:
        self._written[about] = (obj.metadata.resource_version, status)

    def forget(self, about: str) -> None:
        self._written.pop(about, None)

    def clear(self) -> None:
        self._written.clear()

    async def write(
        self, kind: Kind, changed: Mapping[str, tuple[OwnObject, dict[str, Any]]], applier: Applier
    ) -> list[str]:
        """Writes statuses of objects of one kind; names of those that were written. What failed is in the log."""
        jobs = [status_job(kind, name, obj, status) for name, (obj, status) in changed.items()]
        written = []
        for (name, (obj, status)), answer in zip(changed.items(), await applier.send(jobs), strict=True):
            if isinstance(answer, ActionError):
                log_unwritten(f"{kind.name}/{name}", answer)
            else:
                self.put(name, obj, status)
                written.append(name)
        return written
