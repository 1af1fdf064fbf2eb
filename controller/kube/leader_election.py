"""Leader election: reads and writes the Lease on an API server by the rules in `lease.py`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from cluster.errors import UNREADABLE, ActionError, ObservationError
from controller.kube.errors import KubeReadError, KubeWriteError
from controller.kube.lease import Candidate, LeaseRecord, LeaseTimes
from controller.kube.structs import Lease
from controller.kube.write import Writer

log = structlog.get_logger(__name__)

ROUND_TIMEOUT_S = 4.0
"""Timeout of one read or write of the Lease; two of them and a wait fit into the renew deadline."""


DEFAULT_TIMES = LeaseTimes()


class Leadership:
    """Leadership of this process. One task maintains it (`campaign`); other code only queries it."""

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
        """clock: monotonic, seconds. wall_clock: seconds since the epoch, only for human readers of the Lease."""
        self._writer = writer
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name = namespace, name
        self._clock, self._wall_clock = clock, wall_clock
        self._candidate = Candidate(identity, times)
        self._rests_until_s = 0.0

    @property
    def epoch(self) -> int:
        return self._candidate.epoch

    @property
    def holder(self) -> str:
        """Identity of the leader, as of the last read."""
        return self._candidate.seen.holder if self._candidate.seen else ""

    def may_write(self) -> bool:
        return self._candidate.may_write(self._clock())

    async def campaign(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Take the Lease when it is free and renew it while it is held, until cancelled."""
        while True:
            led = self.may_write()
            if self._clock() >= self._rests_until_s:
                await self._try_round()
            if self.may_write() != led:
                log.info("leadership changed", leads=not led, holder=self.holder, epoch=self.epoch)
            await sleep(self._candidate.times.retry_s)

    async def round(self) -> None:
        """Read the Lease and try once to hold it. Raises ObservationError, ActionError."""
        self._candidate = self._candidate.watched(await self._read(), self._clock())
        sent_at_s = self._clock()
        if wanted := self._candidate.wanted(sent_at_s, self._instant()):
            self._candidate = self._candidate.sending(wanted)
            self._candidate = self._candidate.written(await self._write(wanted), sent_at_s)

    async def step_down(self, rest_s: float) -> None:
        """Release the Lease, and leave it to others for a while, seconds, before trying for it again."""
        self._rests_until_s = self._clock() + rest_s
        await self.release()

    async def release(self) -> None:
        """Release the Lease, so that the next leader starts at once. Afterwards this process must not write."""
        record = self._candidate.released(self._instant())
        self._candidate = Candidate(self._candidate.identity, self._candidate.times)
        if record is None:
            return
        try:
            await self._write(record)
        except ActionError as error:
            log.warning("the Lease was not released; it expires", why=str(error))

    async def _try_round(self) -> None:
        try:
            await self.round()
        except (ActionError, ObservationError) as error:
            conflict = isinstance(error, KubeWriteError) and error.refusal.status == 409
            if not conflict:  # another candidate was faster: the next round reads which
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
        target = ("PUT", f"{self._collection}/{self._name}") if record.version else ("POST", self._collection)
        try:
            return record_from(await asyncio.wait_for(self._writer.write(*target, body), ROUND_TIMEOUT_S))
        except TimeoutError as error:
            raise ActionError(f"writing the Lease: no answer within {ROUND_TIMEOUT_S:g} s") from error

    def _instant(self) -> str:
        return datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def record_from(body: bytes) -> LeaseRecord:
    """Lease in a response body. Raises ObservationError."""
    try:
        read = msgspec.json.decode(body, type=Lease)
    except UNREADABLE as error:
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
