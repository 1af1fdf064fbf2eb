"""What the cluster holds at this moment, device by device: the last check before a write that nobody checks after us.

The API server accepts any Binding, also twelve GPUs onto a node of eight. The guard checks a plan against the cluster
as the plan expects it to become; this account checks each action against the cluster as it is: what is being stopped
still holds its devices until it is gone.
"""

from cluster.actions import Action, Bind, Evict, Move, Scale
from cluster.arrays import BoolArray
from cluster.errors import ActionError
from cluster.nodes import eligible_nodes
from cluster.pods import PENDING, device_mask, device_numbers
from cluster.snapshot import Snapshot


class Account:
    """Free capacity of a snapshot, less what was charged since. One batch of actions long."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._free = snapshot.free()
        self._node = snapshot.pods.node.copy()
        self._devices = snapshot.pods.devices.copy()
        self._eligible: dict[int, BoolArray] = {}

    def check(self, action: Action) -> None:
        """Raises ActionError when this cannot be in the cluster as it is now."""
        match action:
            case Bind():
                self._check_bind(action)
            case Evict():
                self._check_runs_on(action.pod, action.node)
            case Move():
                self._check_runs_on(action.pod, action.from_node)
            case Scale():
                if all(service.name != action.service for service in self._snapshot.services):
                    raise ActionError(f"scaling {action.service}: there is no such service")

    def charge(self, bind: Bind) -> None:
        """Count a bind as true. Not checked again."""
        row, where = self._row(bind.pod), self._where(bind.node)
        self._node[row], self._devices[row] = where, device_mask(bind.devices)
        self._change(row, 1)

    def _change(self, row: int, sign: int) -> None:
        shape, where = self._snapshot.pods.shapes[self._snapshot.pods.shape[row]], int(self._node[row])
        self._free.cpu_milli[where] -= sign * shape.cpu_milli
        self._free.memory_bytes[where] -= sign * shape.memory_bytes
        for device in device_numbers(int(self._devices[row])):
            self._free.gpu_milli[where, device] -= sign * shape.gpu_milli

    def _check_bind(self, bind: Bind) -> None:
        row, where = self._row(bind.pod), self._where(bind.node)
        what = f"binding {bind.pod} to {bind.node}"
        if self._node[row] != PENDING:
            raise ActionError(f"{what}: it is on {self._snapshot.nodes.names[int(self._node[row])]} already")
        number = int(self._snapshot.pods.shape[row])
        shape = self._snapshot.pods.shapes[number]
        if number not in self._eligible:
            self._eligible[number] = eligible_nodes(shape, self._snapshot.nodes, self._snapshot.gpu_type_names)
        if not self._eligible[number][where]:
            raise ActionError(f"{what}: the node is cordoned, or its type, labels or taints keep the pod away")
        if len(set(bind.devices)) != shape.gpus:
            raise ActionError(f"{what}: it asks for {shape.gpus} devices and was given {list(bind.devices)}")
        if self._free.cpu_milli[where] < shape.cpu_milli or self._free.memory_bytes[where] < shape.memory_bytes:
            raise ActionError(f"{what}: its CPU or memory is still held by others")
        for device in bind.devices:
            if not 0 <= device < self._snapshot.nodes.gpus[where]:
                raise ActionError(f"{what}: there is no device {device}")
            if self._free.gpu_milli[where, device] < shape.gpu_milli:
                raise ActionError(f"{what}: device {device} is still held by others")

    def _check_runs_on(self, pod: str, node: str) -> None:
        row = self._row(pod)
        runs_on = None if self._node[row] == PENDING else self._snapshot.nodes.names[int(self._node[row])]
        if runs_on != node:
            raise ActionError(f"stopping {pod} on {node}: it runs on {runs_on or 'no node'}")

    def _row(self, pod: str) -> int:
        row = self._snapshot.pods.names.row(pod)
        if row is None:
            raise ActionError(f"acting on pod {pod}: there is no such pod (yet)")
        return row

    def _where(self, node: str) -> int:
        where = self._snapshot.nodes.names.row(node)
        if where is None:
            raise ActionError(f"binding to node {node}: there is no such node")
        return where
