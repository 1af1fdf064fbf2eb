"""What all ways of placing share: the border to the allocation of claims."""

from collections.abc import Callable

from cluster.actions import Bind
from cluster.errors import ActionError
from controller.kube.cluster_view import SeenPod
from controller.kube.stamp import Stamp
from controller.kube.write import Write

Allocate = Callable[[SeenPod, Bind, Stamp], list[Write]]
"""The stamped writes that make a pod's claims hold the devices of a bind. Raises ActionError when they cannot."""
Deallocate = Callable[[str, int], list[Write]]
"""The writes, with the Lease's epoch, that take the devices of a claim (`namespace/name`) back. Raises ActionError when
a pod uses it, or it is not Tonnage's."""


def no_claims(pod: SeenPod, action: Bind, stamp: Stamp) -> list[Write]:  # noqa: ARG001 - the border's
    """Where no pool is placed by `dra`."""
    raise ActionError(f"allocating for {pod.name}: no pool is placed by 'dra', so no claims are watched")


def no_claim_to_release(claim: str, epoch: int) -> list[Write]:  # noqa: ARG001 - the border's
    """Where no pool is placed by `dra`."""
    raise ActionError(f"releasing claim {claim}: no pool is placed by 'dra', so no claims are watched")
