"""RunningPods pods while plans are made: their nodes and devices, and the moves that let another pod fit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.workloads import PodShape
from placement.engine.packer import Choice


@dataclass(frozen=True, slots=True)
class Placed:
    """Pod that holds resources."""

    shape: PodShape
    node: int
    devices: int
    """Bit mask of the node's devices."""


class RunningPods(Mapping[int, Placed]):
    """Pods by number and by node. The number is any stable one: a row of the pod table, a position in a stream."""

    def __init__(self) -> None:
        self._pods: dict[int, Placed] = {}
        self._on: dict[int, dict[int, None]] = {}

    def start(self, pod: int, shape: PodShape, choice: Choice) -> None:
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


@dataclass(frozen=True, slots=True)
class Relocation:
    """Moves that let a pod fit: the running pods move one after another, then the new pod is placed."""

    moves: tuple[tuple[int, Choice], ...]
    """Pod and its destination, in order; each fits once the earlier ones have moved."""
    choice: Choice
    """Choice for the new pod after the moves."""
