"""Fence: the API server refuses writes of an earlier leader once another process has taken the Lease.

A process may be frozen after it checked that it leads and before its request is sent. When it thaws it sends that
request, although it leads no more. Only the receiver can refuse it. The chart's ValidatingAdmissionPolicy compares the
epoch in each write with `leaseTransitions` of the Lease (deploy/fence/fence.yaml).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cluster.errors import ActionError
from controller.api.labels import API_VERSION, EPOCH_ANNOTATION
from controller.kube.errors import KubeWriteError
from controller.kube.write import Write, Writer

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

    writer: Writer
    namespace: str
    """Namespace of the Lease."""
    clock: Callable[[], float]
    """Monotonic clock, seconds."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

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
