"""The fence: an API server that refuses by itself what a leader still sends after another has taken the Lease.

A process that is frozen between asking whether it leads and handing a request to the kernel sends that request when it
thaws, whatever it would know by then. Only the receiver can refuse it. The chart's ValidatingAdmissionPolicy compares
the epoch in each write with `leaseTransitions` of the Lease (deploy/fence/fence.yaml).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cluster.errors import ActionError
from controller.api.labels import API_VERSION, EPOCH_ANNOTATION
from controller.kube.errors import KubeWriteError
from controller.kube.write import Write, Writer

REFUSED = f"{EPOCH_ANNOTATION} is "
"""How the policy's message begins; by it such a refusal is told from one of RBAC."""

WITHIN_S = 5.0
"""How long a new leader waits for the fence before it writes without one. Measured: an API server enforces a new epoch
1.6 ms after the Lease was written (median of 56; most 3.9), a policy that was just made after 0.5 s."""
PAUSE_S = 0.05
SETTLE_S = 1.0
"""Between the fence and the first plan. What an earlier leader wrote just before the fence stood has reached the
watches by then: they lag by milliseconds."""


def is_fenced(error: Exception) -> bool:
    """Whether the API server refused a write because its epoch is not that of the Lease."""
    return isinstance(error, KubeWriteError) and error.refusal.status == 403 and REFUSED in error.refusal.words


def probe(namespace: str, epoch: int) -> Write:
    """A write as a leader of this epoch would send it, of which nothing is kept (`dryRun`).

    An Event, because every installation may create those. namespace: that of the Lease.
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
    """Asks the API server whether it refuses an earlier leader."""

    writer: Writer
    namespace: str
    """Of the Lease."""
    clock: Callable[[], float]
    """Monotonic, seconds."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def stands(self, epoch: int) -> bool:
        """Whether writes of the epoch before this one are refused by now, or come to be within `WITHIN_S`.

        When it does, what earlier leaders wrote before is seen too (`SETTLE_S`).
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
