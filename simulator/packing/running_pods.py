"""Pods that run in a stream of arrivals, by number and by node."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster import workloads
from placement.engine.ledger import Ledger
from placement.engine.packer import Choice


@dataclass(frozen=True, slots=True)
class Placed:
    """Pod that holds resources."""

    shape: workloads.PodShape
    node: int
    devices: int
    """Bit mask of the node's devices."""


class RunningPods(Mapping[int, Placed]):
    """Pods by number and by node. The number is any stable one: a row of the pod table, a position in a stream."""

    def __init__(self) -> None:
        self._pods: dict[int, Placed] = {}
        self._on: dict[int, dict[int, None]] = {}

    def start(self, pod: int, shape: workloads.PodShape, choice: Choice) -> None:
        """Records that a pod was placed, or placed elsewhere after `stop`."""
        self._pods[pod] = Placed(shape, choice.node, choice.devices)
        self._on.setdefault(choice.node, {})[pod] = None

    def stop(self, pod: int) -> Placed:
        """Records that a pod left and returns what it held. Raises KeyError for a pod that does not run."""
        placed = self._pods.pop(pod)
        del self._on[placed.node][pod]
        return placed

    def on(self, node: int) -> tuple[int, ...]:
        """Pods on a node, in order of their start."""
        return tuple(self._on.get(node, ()))

    def __getitem__(self, pod: int) -> Placed:
        return self._pods[pod]

    def __iter__(self) -> Iterator[int]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)


def nodes_without(ledger: Ledger, pods: Sequence[Placed]) -> Ledger:
    """Ledger with one row per pod: the pod's node without it. Several pods of one node give several rows."""
    node, devices = np.array([(pod.node, pod.devices) for pod in pods], dtype=np.int64).reshape(-1, 2).T
    rows, free = np.arange(len(pods)), ledger.free.of(node)
    free.charge_all([pod.shape for pod in pods], rows, rows, devices, -1)
    return Ledger(free, ledger.gpus[node], ledger.gpu_type[node])
