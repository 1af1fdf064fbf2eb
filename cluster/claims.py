"""Idle ResourceClaims, whose devices no pod uses, and the snapshot after one of them is released."""

from dataclasses import replace

from cluster.errors import ActionError
from cluster.scaling import without_pods
from cluster.snapshot import Snapshot
from cluster.workloads import IdleClaim


def idle_claim(snapshot: Snapshot, name: str) -> IdleClaim | None:
    return next((each for each in snapshot.idle_claims if each.name == name), None)


def released(snapshot: Snapshot, name: str) -> Snapshot:
    """The snapshot after a claim's devices are free. Its pods stay pending.

    Raises ActionError when there is no such idle claim.
    """
    claim = idle_claim(snapshot, name)
    if claim is None:
        raise ActionError(f"releasing claim {name}: there is no such idle claim; observe again")
    holder = snapshot.pods.names.row(claim.holder)
    pods = snapshot.pods if holder is None else without_pods(snapshot.pods, [holder])
    return replace(snapshot, pods=pods, idle_claims=tuple(each for each in snapshot.idle_claims if each is not claim))
