"""A snapshot in which a node is closed: what runs there stays, nothing new starts."""

from dataclasses import replace

from cluster.errors import ActionError
from cluster.snapshot import Snapshot


def cordoned(snapshot: Snapshot, node: str) -> Snapshot:
    """The snapshot with this node closed. Raises ActionError when there is no such node."""
    row = snapshot.nodes.names.row(node)
    if row is None:
        raise ActionError(f"closing {node}: there is no such node; observe again")
    schedulable = snapshot.nodes.schedulable.copy()
    schedulable[row] = False
    return replace(snapshot, nodes=replace(snapshot.nodes, schedulable=schedulable))
