"""Holding the Lease: reads and writes it on an API server by the rules in `lease.py`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from cluster.errors import ActionError, ObservationError
from controller.kube.errors import KubeReadError, KubeWriteError
from controller.kube.lease import LeaseRecord, LeaseTimes, Standing
from controller.kube.structs import Lease
from controller.kube.write import Writer

log = structlog.get_logger(__name__)

ROUND_TIMEOUT_S = 4.0
"""Of one read or write of the Lease; two and a wait fit into the renew deadline."""


DEFAULT_TIMES = LeaseTimes()


class Leadership:
    """Whether this process leads. One task keeps it (`campaign`), others only ask."""

    def __init__(
        self,
        writer: Writer,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        times: LeaseTimes = DEFAULT_TIMES,
    ) -> None:
        """clock: monotonic, seconds. wall_clock: since the epoch, only for people who read the Lease."""
        self._writer = writer
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name = namespace, name
        self._clock, self._wall_clock = clock, wall_clock
        self._standing = Standing(identity, times)

    @property
    def epoch(self) -> int:
        return self._standing.epoch

    @property
    def holder(self) -> str:
        """Who leads, as far as this process knows."""
        return self._standing.seen.holder if self._standing.seen else ""

    def may_write(self) -> bool:
        return self._standing.may_write(self._clock())

    async def campaign(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Take the Lease when it is free, renew it while it is held; until cancelled."""
        while True:
            led = self.may_write()
            await self._tried()
            if self.may_write() != led:
                log.info("leadership changed", leads=not led, holder=self.holder, epoch=self.epoch)
            await sleep(self._standing.times.retry_s)

    async def round(self) -> None:
        """One look at the Lease and one attempt to hold it. Raises ObservationError, ActionError."""
        self._standing = self._standing.watched(await self._read(), self._clock())
        sent_at_s = self._clock()
        if wanted := self._standing.wanted(sent_at_s, self._instant()):
            self._standing = self._standing.written(await self._write(wanted), sent_at_s)

    async def release(self) -> None:
        """Let the next leader start at once. What this process still sends afterwards would be a stale leader's."""
        record = self._standing.released(self._instant())
        self._standing = Standing(self._standing.identity, self._standing.times)
        if record is None:
            return
        try:
            await self._write(record)
        except ActionError as error:
            log.warning("the Lease was not released; it expires", why=str(error))

    async def _tried(self) -> None:
        try:
            await self.round()
        except (ActionError, ObservationError) as error:
            conflict = isinstance(error, KubeWriteError) and error.refusal.status == 409
            if not conflict:  # another was faster: the next round sees who
                log.warning("the Lease could not be kept", why=str(error))

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
        how = ("PUT", f"{self._collection}/{self._name}") if record.version else ("POST", self._collection)
        try:
            return record_from(await asyncio.wait_for(self._writer.write(*how, body), ROUND_TIMEOUT_S))
        except TimeoutError as error:
            raise ActionError(f"writing the Lease: no answer within {ROUND_TIMEOUT_S:g} s") from error

    def _instant(self) -> str:
        return datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def record_from(body: bytes) -> LeaseRecord:
    """The Lease in an answer. Raises ObservationError."""
    try:
        read = msgspec.json.decode(body, type=Lease)
    except msgspec.MsgspecError as error:
        raise ObservationError(f"reading a Lease: {error}") from error
    spec = read.spec
    return LeaseRecord(
        holder=spec.holder_identity or "",
        duration_s=spec.lease_duration_seconds or LeaseTimes().duration_s,
        acquired=spec.acquire_time or "",
        renewed=spec.renew_time or "",
        transitions=spec.lease_transitions or 0,
        version=read.metadata.resource_version,
    )


def lease_from(record: LeaseRecord, namespace: str, name: str) -> Mapping[str, Any]:
    metadata = {"name": name, "namespace": namespace}
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
