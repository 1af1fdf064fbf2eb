"""Quarantine: taints of nodes as the snapshot has them."""

from dataclasses import replace

from cluster.errors import ActionError
from cluster.nodes import Taint
from cluster.snapshot import Snapshot

UNHEALTHY_TAINT = "tonnage.dev/unhealthy"
"""Taint of a node in quarantine; its value is `incident.generation`."""
PROBATION_TAINT = "tonnage.dev/probation"
"""Taint of a node that was in quarantine and takes only pods that tolerate this; value likewise."""
OUR_TAINTS = (UNHEALTHY_TAINT, PROBATION_TAINT)


def taint_on(snapshot: Snapshot, node: str, key: str) -> Taint | None:
    """The taint of this key on a node; None where it has none, or is not there."""
    row = snapshot.nodes.names.row(node)
    return None if row is None else next((each for each in snapshot.nodes.taints[row] if each.key == key), None)


def tainted(snapshot: Snapshot, node: str, key: str, value: str | None) -> Snapshot:
    """The snapshot with a NoSchedule taint on a node, where ours replace each other; with None, without its key.

    Raises ActionError when there is no such node.
    """
    row = snapshot.nodes.names.row(node)
    if row is None:
        raise ActionError(f"tainting {node}: there is no such node; observe again")
    taints = list(snapshot.nodes.taints)
    gone = OUR_TAINTS if value is not None and key in OUR_TAINTS else (key,)
    kept = tuple(each for each in taints[row] if each.key not in gone)
    taints[row] = kept if value is None else (*kept, Taint(key, value))
    return replace(snapshot, nodes=replace(snapshot.nodes, taints=tuple(taints)))
