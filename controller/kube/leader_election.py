"""Leader election by a Lease on the API server: its rules, its durations, and the task that keeps to them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import structlog

from cluster.clock import Clock
from cluster.errors import UNREADABLE, ActionError, ObservationError
from controller.api.labels import ANSWERS_AT_ANNOTATION
from controller.api.notation import microtime
from controller.api.structs import LeaseObject
from controller.kube.api_server import ApiServer
from controller.kube.request import KubeReadError, KubeWriteError, Sleep

IDENTITY_PATH = "/identity"
"""Path on the probe port at which a process says who it is."""
KEPT = 16
"""Number of own renewals that are remembered. Each round writes one, and without an answer no more than five of them
fit into the time for which a Lease is held."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations of leader election. The defaults are those of Kubernetes' own controllers."""

    duration_s: int = 15
    """Time without a change after which a standby takes the Lease."""
    renew_deadline_s: float = 10.0
    """Time without a successful renewal after which a leader stops writing. The difference to `duration_s` is the time
    that a request in flight may take."""
    retry_s: float = 2.0
    """Interval of renewing or reading the Lease."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Content of the Lease in the API."""

    holder: str = ""
    """Identity of the leader; empty after a release."""
    duration_s: int = 15
    acquired: str = ""
    """RFC 3339 instant for human readers, as `renewed`; here only a change of it matters."""
    renewed: str = ""
    transitions: int = -1
    """Number of changes of the holder: the epoch with which a leader stamps its writes. -1: there was no holder."""
    version: str = ""
    """resourceVersion, the precondition of replacing the Lease; empty when it does not exist yet."""
    address: str = ""
    """Where the holder says who it is (`HOST:PORT`); empty: nowhere."""


@dataclass(frozen=True, slots=True)
class LeaseCandidate:
    """State of one candidate for leadership. Instants are of its own monotonic clock, seconds."""

    identity: str
    """Identity that people read; two candidates may have the same, as from one settings file."""
    times: LeaseTimes = LeaseTimes()
    address: str = ""
    """Where this candidate says who it is."""
    seen: LeaseRecord | None = None
    """Lease as last read; None before the first read."""
    seen_at_s: float = 0.0
    """Time at which `seen` was first read with this content."""
    renewed_at_s: float | None = None
    """Time at which the last successful renewal was sent (not answered); None while the candidate does not lead."""
    sent: tuple[str, ...] = ()
    """Renewals of the last writes, by which a Lease under this identity is known as this candidate's own: another
    process may have the same identity, and would write beside it."""

    @property
    def epoch(self) -> int:
        return self.seen.transitions if self.seen else 0

    def write_until_s(self) -> float | None:
        """Time until which this candidate may start a write; None when it does not lead."""
        return None if self.renewed_at_s is None else self.renewed_at_s + self.times.renew_deadline_s

    def may_write(self, now_s: float) -> bool:
        until_s = self.write_until_s()
        return until_s is not None and now_s < until_s

    def watched(self, record: LeaseRecord, now_s: float) -> "LeaseCandidate":
        """State after a read of the Lease. When another candidate holds it, this one's leadership ends at once."""
        changed = self.seen is None or record != self.seen
        renewed_at_s = self.renewed_at_s if self._wrote(record) else None
        return replace(self, seen=record, seen_at_s=now_s if changed else self.seen_at_s, renewed_at_s=renewed_at_s)

    def after_rollback(self, record: LeaseRecord, now_s: float) -> "LeaseCandidate":
        """State after a read of a Lease that is older than one that was read before: the API server's store went back.

        Nobody leads, and the next epoch is a new one. Who led until now may take it at once: whoever holds the old one
        ended long ago. Others wait for as long as for any other leader.
        """
        led = self.may_write(now_s)
        free = replace(record, holder="" if led else record.holder, transitions=max(record.transitions, self.epoch))
        return replace(self, seen=free, seen_at_s=now_s, renewed_at_s=None, sent=())

    def wanted(self, now_s: float, instant: str, *, is_orphaned: bool = False) -> LeaseRecord | None:
        """Lease that this candidate should try to write now; None while another candidate holds it.

        instant: RFC 3339 with microseconds. The Lease must have been read before (`LeaseRecord()` when there is none).
        is_orphaned: whether the process of the holder has ended.
        """
        assert self.seen is not None, "the Lease is read before it is wanted"  # noqa: S101 - an error of the caller
        seen = self.seen
        if self._wrote(seen):
            return replace(seen, renewed=instant, duration_s=self.times.duration_s, address=self.address)
        if seen.holder and now_s < self.seen_at_s + seen.duration_s and not is_orphaned:
            return None
        # The first holder of a new Lease makes no transition; every later holder begins a new epoch.
        times = self.times.duration_s, instant, instant
        return LeaseRecord(self.identity, *times, seen.transitions + 1, seen.version, self.address)

    def sending(self, record: LeaseRecord) -> "LeaseCandidate":
        """State before a write, which may take effect without an answer."""
        return replace(self, sent=(*self.sent, record.renewed)[-KEPT:])

    def written(self, record: LeaseRecord, sent_at_s: float) -> "LeaseCandidate":
        """State after the API accepted `record`, in a request that was sent at `sent_at_s`."""
        return replace(self.sending(record), seen=record, seen_at_s=sent_at_s, renewed_at_s=sent_at_s)

    def _wrote(self, record: LeaseRecord) -> bool:
        return record.holder == self.identity and record.renewed in self.sent

    def released(self, instant: str) -> LeaseRecord | None:
        """Lease that a leader writes when it ends, so that a standby need not wait; None when it does not lead."""
        if self.seen is None or not self._wrote(self.seen):
            return None
        return replace(self.seen, holder="", duration_s=1, renewed=instant, address="")


log = structlog.get_logger(__name__)

LOOK_TIMEOUT_S, LOOK_AGAIN_S = 1.0, 0.3
"""Timeout of asking the holder who it is, and pause before it is asked again."""
ROUND_TIMEOUT_S = 4.0
"""Timeout of one read or write of the Lease; two of them and a wait fit into the renew deadline."""


class Leadership:
    """Leadership of this process. One task maintains it (`campaign`); other code only queries it."""

    def __init__(
        self,
        writer: ApiServer,
        *,
        lease: tuple[str, str],
        identity: str,
        clock: Clock,
        wall_clock: Clock,
        rolled_back: Callable[[], None],
        identity_at: Callable[[str], Awaitable[str | None]] | None = None,
    ) -> None:
        """lease: its namespace and name. clock: monotonic, seconds. wall_clock: seconds since the epoch, only for human
        readers of the Lease. rolled_back: called in the event loop when the API server's store went back in time.
        identity_at: who answers at an address (see `identity_at`); None: a Lease is taken when it has expired only."""
        self._writer = writer
        self._namespace, self._name = lease
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        self._clock, self._wall_clock = clock, wall_clock
        self._candidate = LeaseCandidate(identity)
        self._rests_until_s = 0.0
        self._rolled_back, self._identity_at = rolled_back, identity_at
        self._newest = 0
        self._answered = ""
        """Holder that has said at its address who it is."""
        self._orphan_until_s = 0.0
        """When the Lease would have expired that was taken from a holder whose process has ended."""

    @property
    def epoch(self) -> int:
        return self._candidate.epoch

    @property
    def holder(self) -> str:
        """Identity of the leader, as of the last read."""
        return self._candidate.seen.holder if self._candidate.seen else ""

    def may_write(self) -> bool:
        return self._candidate.may_write(self._clock())

    @property
    def identity(self) -> str:
        return self._candidate.identity

    @property
    def rest_s(self) -> float:
        """Time until the Lease would have expired that was taken from a holder whose process has ended, seconds."""
        return max(0.0, self._orphan_until_s - self._clock())

    def answers_at(self, address: str) -> None:
        """Has the Lease say where this process says who it is, from its next renewal on."""
        self._candidate = replace(self._candidate, address=address)

    async def campaign(self, sleep: Sleep = asyncio.sleep) -> None:
        """Take the Lease when it is free and renew it while it is held, until cancelled."""
        while True:
            led = self.may_write()
            if self._clock() >= self._rests_until_s:
                try:
                    await self.round()
                except (ActionError, ObservationError) as error:
                    conflict = isinstance(error, KubeWriteError) and error.refusal.status == 409
                    if not conflict:  # another candidate was faster: the next round reads which
                        log.warning("the Lease could not be kept", why=str(error))
            if self.may_write() != led:
                log.info("leadership changed", leads=not led, holder=self.holder, epoch=self.epoch)
            await sleep(self._candidate.times.retry_s)

    async def round(self) -> None:
        """Read the Lease and try once to hold it. Raises ObservationError, ActionError."""
        record = await self._read()
        version = _number(record.version)
        if version < self._newest:  # or it is gone, as from a backup of before it
            log.error("the API server's store went back in time: all is read anew", was=self._newest, now=version)
            self._candidate = self._candidate.after_rollback(record, self._clock())
            self._rolled_back()
        else:
            self._candidate = self._candidate.watched(record, self._clock())
        self._newest = version
        is_orphaned = not self.may_write() and await self._is_orphaned(record)
        sent_at_s = self._clock()
        if is_orphaned:
            self._orphan_until_s = self._candidate.seen_at_s + record.duration_s
        if wanted := self._candidate.wanted(sent_at_s, microtime(self._wall_clock()), is_orphaned=is_orphaned):
            self._candidate = self._candidate.sending(wanted)
            self._candidate = self._candidate.written(written := await self._write(wanted), sent_at_s)
            self._newest = _number(written.version) or self._newest

    async def step_down(self, rest_s: float) -> None:
        """Release the Lease, and leave it to others for a while, seconds, before trying for it again."""
        self._rests_until_s = self._clock() + rest_s
        await self.release()

    async def release(self) -> None:
        """Release the Lease, so that the next leader starts at once. Afterwards this process must not write."""
        record = self._candidate.released(microtime(self._wall_clock()))
        self._candidate = LeaseCandidate(self._candidate.identity, address=self._candidate.address)
        if record is None:
            return
        try:
            await self._write(record)
        except ActionError as error:
            log.warning("the Lease was not released; it expires", why=str(error))

    async def _is_orphaned(self, record: LeaseRecord) -> bool:
        """Whether the process of another holder has ended: it said before who it is, and now its address refuses
        connections, or another process answers there. A holder that is silent may be frozen: its Lease has to expire.
        """
        if self._identity_at is None or not record.holder or not record.address:
            return False
        for look in range(2):
            if look:
                await asyncio.sleep(LOOK_AGAIN_S)
            if (found := await self._identity_at(record.address)) == record.holder:
                self._answered = record.holder
            if found is None or found == record.holder or self._answered != record.holder:
                return False
        log.warning("the process that holds the Lease has ended: it is taken before it expires", holder=record.holder)
        return True

    async def _read(self) -> LeaseRecord:
        path = f"{self._collection}/{self._name}"
        try:
            return record_from(await asyncio.wait_for(self._writer.read(path), ROUND_TIMEOUT_S))
        except TimeoutError as error:
            raise ObservationError(f"reading {path}: no answer within {ROUND_TIMEOUT_S:g} s") from error
        except KubeReadError as error:
            if error.refusal.status == 404:
                return LeaseRecord()
            raise

    async def _write(self, record: LeaseRecord) -> LeaseRecord:
        body = lease_from(record, self._namespace, self._name)
        target = ("PUT", f"{self._collection}/{self._name}") if record.version else ("POST", self._collection)
        try:
            return record_from(await asyncio.wait_for(self._writer.write(*target, body), ROUND_TIMEOUT_S))
        except TimeoutError as error:
            raise ActionError(f"writing the Lease: no answer within {ROUND_TIMEOUT_S:g} s") from error


def _number(version: str) -> int:
    """A resourceVersion as a number, which grows with the store; 0 where there is none."""
    return int(version) if version.isdecimal() else 0


async def identity_at(address: str) -> str | None:
    """Who answers at the address (HOST:PORT, path IDENTITY_PATH): empty where connections are refused, None where
    nobody answers in time.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(LOOK_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(f"GET {IDENTITY_PATH} HTTP/1.0\r\n\r\n".encode())
                head, _, body = (await reader.read(4096)).partition(b"\r\n\r\n")
            finally:
                writer.close()
    except ConnectionRefusedError:
        return ""
    except (OSError, TimeoutError, ValueError):
        return None
    return body.decode("utf-8", "replace").strip() if head else None


def record_from(body: bytes) -> LeaseRecord:
    """Lease in a response body. Raises ObservationError."""
    try:
        read = msgspec.json.decode(body, type=LeaseObject)
    except UNREADABLE as error:
        raise ObservationError(f"reading a Lease: {error}") from error
    spec = read.spec
    return LeaseRecord(
        holder=spec.holder_identity or "",
        duration_s=spec.lease_duration_seconds or LeaseTimes().duration_s,
        acquired=spec.acquire_time or "",
        renewed=spec.renew_time or "",
        transitions=spec.lease_transitions or 0,
        address=read.metadata.annotations.get(ANSWERS_AT_ANNOTATION, ""),
        version=read.metadata.resource_version,
    )


def lease_from(record: LeaseRecord, namespace: str, name: str) -> Mapping[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if record.address:
        metadata["annotations"] = {ANSWERS_AT_ANNOTATION: record.address}
    if record.version:
        metadata["resourceVersion"] = record.version
    spec = {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
