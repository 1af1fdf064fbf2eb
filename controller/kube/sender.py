"""Sender of writes: concurrent, in order per object, only while this process leads, and without blind retries."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import structlog

from cluster.clock import Clock
from cluster.errors import UNREADABLE, ActionError
from controller.api.labels import API_VERSION, EPOCH_ANNOTATION, PLACED_AT_ANNOTATION
from controller.api.notation import rfc3339
from controller.api.structs import Meta, Slim
from controller.kube.api_server import ApiServer
from controller.kube.request import JSON, NOT_FOUND, Body, KubeWriteError, Refusal, Sleep

log = structlog.get_logger(__name__)


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


REFUSED = f"{EPOCH_ANNOTATION} is "
"""Start of the policy's message, which distinguishes such a refusal from one of RBAC."""

WITHIN_S = 5.0
"""Time that a new leader waits for the fence before it writes without one. Measured: an API server enforces a new epoch
1.6 ms after the Lease was written (median of 56; maximum 3.9 ms), and a newly created policy after 0.5 s."""
PAUSE_S = 0.05
SETTLE_S = 1.0
"""Pause between the fence and the first plan. It lets the last writes of an earlier leader reach the watches, which lag
by milliseconds."""


def is_fenced(error: Exception) -> bool:
    """Whether the API server refused a write because its epoch is not that of the Lease."""
    return isinstance(error, KubeWriteError) and error.refusal.status == 403 and REFUSED in error.refusal.words


def probe(namespace: str, epoch: int) -> Write:
    """Dry-run write with this epoch, as its leader would send it; the server stores nothing.

    It is an Event, because every installation may create those. namespace: of the Lease.
    """
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "generateName": "tonnage-fence-",
            "namespace": namespace,
            "annotations": {EPOCH_ANNOTATION: str(epoch)},
        },
        "eventTime": "2000-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Probe",
        "action": "Probing",
        "note": "is a write of an earlier leader refused?",
        "regarding": {"apiVersion": API_VERSION, "kind": "Lease", "namespace": namespace, "name": "tonnage"},
        "reportingController": "tonnage.dev/controller",
        "reportingInstance": "fence",
    }
    return Write("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body, query={"dryRun": "All"})


@dataclass(frozen=True, slots=True)
class Fence:
    """Test of the fence: whether the API server refuses the writes of an earlier leader."""

    writer: ApiServer
    namespace: str
    """Namespace of the Lease."""
    clock: Clock
    """Monotonic clock, seconds."""
    sleep: Sleep = asyncio.sleep

    async def is_enforced(self, epoch: int) -> bool:
        """Whether writes of the preceding epoch are refused, now or within `WITHIN_S`.

        If so, returns after `SETTLE_S`, when the watches have delivered the earlier leaders' writes.
        """
        over_at_s = self.clock() + WITHIN_S
        while not await self._refuses(epoch - 1):
            if self.clock() >= over_at_s:
                return False
            await self.sleep(PAUSE_S)
        await self.sleep(SETTLE_S)
        return True

    async def _refuses(self, epoch: int) -> bool:
        write = probe(self.namespace, epoch)
        try:
            await asyncio.wait_for(
                self.writer.write(write.method, write.path, write.body, write.query), timeout=WITHIN_S
            )
        except ActionError as error:
            return is_fenced(error)
        except TimeoutError:
            return False
        return False


REQUEST_TIMEOUT_S = 4.0
"""Timeout of a write. Below the difference between a Lease's duration and its renew deadline (5 s): a write that a
leader began while it held the Lease has ended before another process leads."""
MAX_WAIT_S = 2.0
"""Longest Retry-After that is waited for within an action; a longer one is left to the next cycle."""
CONCURRENCY = 32
"""Number of writes in flight. Measured with a bare client on 2 cores: 32 bind 1,830 pods/s, 128 only 1,470."""


class NotLeadingError(ActionError):
    """The write was not made, because this process does not lead, or no longer leads."""


class Leader(Protocol):
    """Process that may hold the Lease."""

    def may_write(self) -> bool:
        """Whether it holds the Lease, by a monotonic clock; checked before every request."""
        ...

    def fenced(self) -> None:
        """Called when the API server refused a write because another process leads."""
        ...

    def contradicted(self, path: str) -> None:
        """Called when the API server has another object under this path than the caches, by its UID."""
        ...


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Write and the object that it changes; the writes of one object are sent in order."""

    about: str
    """Object of the write: `Pod/namespace/name`."""
    write: Write


Sent = bytes | ActionError
"""Result of a write: the response body, or the error."""


@dataclass(frozen=True, slots=True)
class Applier:
    """Sender of all writes of a plan from this process to the API server."""

    writer: ApiServer
    leader: Leader
    sleep: Sleep = asyncio.sleep
    concurrency: int = CONCURRENCY

    async def send(self, jobs: Sequence[WriteJob]) -> list[Sent]:
        """Result of each job, in order of the jobs. After a failure, later writes to the same object are not sent."""
        answers: list[Sent] = [ActionError("was not sent")] * len(jobs)
        by_object: dict[str, list[int]] = {}
        for number, job in enumerate(jobs):
            by_object.setdefault(job.about, []).append(number)
        queue = iter(by_object.values())

        async def worker() -> None:
            # All workers share one iterator; no two get the same object, because taking one involves no await.
            for numbers in queue:
                before: Sent = b""
                for number in numbers:
                    before = answers[number] = await self.send_one(jobs[number].write, before)
                    if isinstance(before, ActionError):
                        break

        await asyncio.gather(*(worker() for _ in range(min(self.concurrency, len(by_object)))))
        return answers

    async def send_one(self, write: Write, before: Sent = b"") -> Sent:
        """Result of one write. before: response to the preceding write of the same object, if there is one."""
        try:
            write = _following(write, before)
            return await self._sent(write)
        except KubeWriteError as error:
            if write.method == "DELETE" and error.refusal.status == NOT_FOUND:
                return b""  # it is gone already, or its kind is not installed
            if (declared := without_undeclared(write, error)) is not None:
                return await self.send_one(declared)
            wait_s = error.refusal.retry_after_s
            if error.refusal.status not in (429, 503) or wait_s is None or wait_s > MAX_WAIT_S:
                return error
        except ActionError as error:
            return error
        # The server did nothing and named a time to retry: retry once, and only while still leading.
        await self.sleep(wait_s)
        try:
            return await self._sent(write)
        except ActionError as error:
            return error

    async def _sent(self, write: Write) -> bytes:
        if not self.leader.may_write():
            raise NotLeadingError(f"{write.method} {write.path}: not sent, this process does not hold the Lease")
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self.writer.write(write.method, write.path, write.body, write.query, write.content_type)
        except TimeoutError as error:
            refusal = Refusal(0, "NoAnswer", f"no answer within {REQUEST_TIMEOUT_S:g} s")
            raise KubeWriteError(f"{write.method} {write.path}", refusal) from error
        except KubeWriteError as error:
            if error.refusal.status == 409 and _OTHER_OBJECT.search(error.refusal.words):
                self.leader.contradicted(write.path)
            if not is_fenced(error):
                raise
            self.leader.fenced()
            raise NotLeadingError(str(error)) from error


_OTHER_OBJECT = re.compile(r"\buid\b", re.IGNORECASE)
"""In the words of a refusal for a UID: `UID in precondition: a, UID in object meta: b`. Source: apiserver, storage."""
_UNDECLARED = re.compile(r"(\.status\b\S*): field not declared in schema")
"""How the API server refuses a field that the installed CRD lacks, as that of an older release."""


def without_undeclared(write: Write, error: KubeWriteError) -> Write | None:
    """The write of a status without the fields that the installed CRD lacks; None where that is not the complaint.

    One such field must not cost the rest of the status.
    """
    paths = set(_UNDECLARED.findall(error.refusal.words))
    if not paths or write.body is None:
        return None
    body = deepcopy(dict(write.body))
    for path in sorted(paths):
        _drop(body, re.sub(r"\[[^]]*\]", ".[]", path).split(".")[1:])
        _tell_undeclared(str(body.get("kind")), path)
    return None if body == write.body else replace(write, body=body)


def _drop(at: Any, path: Sequence[str]) -> None:
    """Deletes a field at a path, in which `[]` stands for all entries of a list."""
    first, *rest = path
    if first == "[]" and isinstance(at, list):
        for each in at:
            _drop(each, rest)
    elif isinstance(at, dict) and first in at:
        if rest:
            _drop(at[first], rest)
        else:
            del at[first]


@lru_cache(maxsize=1024)
def _tell_undeclared(kind: str, path: str) -> None:
    """Logs it once, not for each of a thousand objects."""
    remedy = "apply the CRDs of this version (`tonnage crds | kubectl apply -f -`)"
    log.warning("the installed CRD lacks a field of the status: it is left out", kind=kind, field=path, remedy=remedy)


class _Answer(Slim, frozen=True):
    """Object in the response to a write."""

    metadata: Meta


def _following(write: Write, before: Sent) -> Write:
    """The write with the resourceVersion from the preceding response. Raises ActionError when that has none."""
    if not write.on_version_of_answer or not isinstance(before, bytes) or not isinstance(write.body, Mapping):
        return write
    try:
        version = msgspec.json.decode(before, type=_Answer).metadata.resource_version
    except UNREADABLE as error:
        raise ActionError(
            f"{write.method} {write.path}: not sent, cannot decode the response to the write before it: {error}"
        ) from error
    return replace(write, body={**write.body, "metadata": {**write.body["metadata"], "resourceVersion": version}})


def may_have_happened(error: ActionError) -> bool:
    """Whether a failed write may have taken effect: there was no response, or the server failed midway."""
    return isinstance(error, KubeWriteError) and (error.refusal.status == 0 or error.refusal.status >= 500)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Annotations of a placed pod or an allocated claim."""

    epoch: int
    """Lease epoch of the leader."""
    at_s: float
    """Time of placement, Unix seconds. It is stored on the object, so that the next leader knows it."""

    @property
    def annotations(self) -> dict[str, str]:
        return {EPOCH_ANNOTATION: str(self.epoch), PLACED_AT_ANNOTATION: rfc3339(self.at_s)}
