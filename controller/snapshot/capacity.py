"""Capacity types in the snapshot: instances of services that may not use spot nodes are kept off them."""

from dataclasses import replace

from cluster.snapshot import Snapshot
from cluster.workloads import SPOT_LABELS, Terms, is_spot, on_capacity


def with_instances_off_spot(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which services that may not use spot nodes, and their pods, are restricted to other nodes.

    Their Deployments say nothing of capacity types: it is Tonnage that chooses their nodes. A template that names a
    capacity type itself is left alone. Unchanged in a fleet without spot nodes.
    """
    if not any(map(is_spot, snapshot.nodes.labels)):
        return snapshot
    kept_off = {s.name for s in snapshot.services if not s.spot and not _names_capacity(s.node_terms)}
    services = tuple(
        replace(each, node_terms=on_capacity(each.node_terms, spot=False)) if each.name in kept_off else each
        for each in snapshot.services
    )
    pods = snapshot.pods
    shape, shapes = pods.shape.copy(), list(pods.shapes)
    numbers: dict[int, int] = {}
    for row in pods.pending.tolist():
        if pods.owner[row] not in kept_off:
            continue
        own = int(shape[row])
        if own not in numbers:
            numbers[own] = len(shapes)
            shapes.append(replace(shapes[own], node_terms=on_capacity(shapes[own].node_terms, spot=False)))
        shape[row] = numbers[own]
    shape.setflags(write=False)
    return replace(snapshot, services=services, pods=replace(pods, shape=shape, shapes=tuple(shapes)))


def _names_capacity(terms: Terms) -> bool:
    return any(each.key in SPOT_LABELS for term in terms for each in term)
