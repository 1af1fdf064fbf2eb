"""Interface between placers and the allocation of ResourceClaims."""

from collections.abc import Callable

from cluster.actions import Bind
from cluster.errors import ActionError
from controller.kube.cluster_view import SeenPod
from controller.kube.sender import Stamp, Write

Allocate = Callable[[SeenPod, Bind, Stamp], list[Write]]
"""Returns the stamped writes that allocate the devices of a bind to the pod's claims. Raises ActionError when that is
impossible."""
Deallocate = Callable[[str, int], list[Write]]
"""Returns the writes, with the Lease epoch, that deallocate a claim (`namespace/name`). Raises ActionError when a pod
uses it, or Tonnage did not allocate it."""


def no_claims(pod: SeenPod, action: Bind, stamp: Stamp) -> list[Write]:  # noqa: ARG001 - part of Allocate
    """Always raises ActionError: the Allocate of an installation in which no pool has the placement mode `dra`."""
    raise ActionError(f"allocating for {pod.name}: no pool has placer 'dra', so no claims are watched")


def no_claim_to_release(claim: str, epoch: int) -> list[Write]:  # noqa: ARG001 - part of Deallocate
    """Always raises ActionError: the Deallocate of an installation in which no pool has the placement mode `dra`."""
    raise ActionError(f"releasing claim {claim}: no pool has placer 'dra', so no claims are watched")
