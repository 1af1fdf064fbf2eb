"""The pods that run while plans are made: which, where, on which devices; and what it takes to make room among them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.workloads import PodShape
from placement.engine.packer import Choice


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod that holds resources."""

    shape: PodShape
    node: int
    devices: int
    """Bit mask."""


class Running(Mapping[int, Placed]):
    """Pods by number (any number that stays theirs: a row of the pod table, a position in a stream), and by node."""

    def __init__(self) -> None:
        self._pods: dict[int, Placed] = {}
        self._on: dict[int, dict[int, None]] = {}

    def start(self, pod: int, shape: PodShape, choice: Choice) -> None:
        """A pod was placed; or placed elsewhere, after `stop`."""
        self._pods[pod] = Placed(shape, choice.node, choice.devices)
        self._on.setdefault(choice.node, {})[pod] = None

    def stop(self, pod: int) -> Placed:
        """A pod left; tells what it held. Raises KeyError for a pod that does not run."""
        placed = self._pods.pop(pod)
        del self._on[placed.node][pod]
        return placed

    def on(self, node: int) -> tuple[int, ...]:
        """The pods on a node, in order of their start."""
        return tuple(self._on.get(node, ()))

    def __getitem__(self, pod: int) -> Placed:
        return self._pods[pod]

    def __iter__(self) -> Iterator[int]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)


@dataclass(frozen=True, slots=True)
class Room:
    """How a pod fits after all: these running pods move, one after another, then it goes where it was meant to."""

    moves: tuple[tuple[int, Choice], ...]
    """Pod and where it goes, in order; each fits once those before it have moved."""
    choice: Choice
    """Where the new pod goes then."""
