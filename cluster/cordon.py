"""Cordon of a node in a snapshot: its pods stay, and no new pod starts there."""

from dataclasses import replace

from cluster.errors import ActionError
from cluster.snapshot import Snapshot


def cordoned(snapshot: Snapshot, node: str) -> Snapshot:
    """Snapshot with this node unschedulable. Raises ActionError when there is no such node."""
    row = snapshot.nodes.names.row(node)
    if row is None:
        raise ActionError(f"cordoning {node}: there is no such node; observe again")
    schedulable = snapshot.nodes.schedulable.copy()
    schedulable[row] = False
    return replace(snapshot, nodes=replace(snapshot.nodes, schedulable=schedulable))
