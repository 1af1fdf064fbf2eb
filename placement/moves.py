"""Moves of running pods, where the worth that comes free exceeds their price.

A move of pod q from node a to node b frees worth on a and costs worth on b, both in GPUs under the policy's prices:

    saving = ((worth of a without q - worth of a) * $/GPU-h of a  -  cost of q on b * $/GPU-h of b) * expected stay

The move is made when the saving exceeds its price. It mostly frees fragments: GPU or CPU that no expected pod could
have used where it was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster import actions, arrays, plans, workloads
from cluster.snapshot import PENDING, Snapshot, device_numbers
from placement.engine.ledger import Ledger
from placement.engine.packer import Choice, Packer
from placement.move_price import MovePrice


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


@dataclass(frozen=True, slots=True)
class PricedMove:
    """A move that pays."""

    pod: int
    was: Placed
    choice: Choice
    saving_usd: float
    price_usd: float


def moves_worth_their_price(
    packer: Packer,
    running: RunningPods,
    movable: Iterable[int],
    usd_per_gpu_h: arrays.FloatArray,
    price: MovePrice,
    most: int,
) -> tuple[PricedMove, ...]:
    """Moves that pay, the best first; each is weighed in the fleet as the earlier moves leave it.

    movable: pods that may be moved, each at most once. usd_per_gpu_h: shape (GPU types,). most: maximum number of
    moves.
    Leaves the packer and `running` unchanged. No moves under a policy without `worth`.
    """
    usd = np.append(usd_per_gpu_h, 0.0)[packer.ledger.gpu_type]
    waiting = [pod for pod in dict.fromkeys(movable) if pod in running]
    moves: list[PricedMove] = []
    while len(moves) < most:
        paying = [move for move in _weighed(packer, running, waiting, usd, price) if move is not None]
        paying.sort(key=lambda move: (move.price_usd - move.saving_usd, move.pod))  # the greatest gain first
        before = len(moves)
        for pod in [move.pod for move in paying[: most - before]]:
            # Weighed again: an earlier move may have taken its place, or freed a better one.
            move = _weighed(packer, running, [pod], usd, price)[0]
            if move is not None:
                _replace(packer, running, pod, move.choice)
                moves.append(move)
                waiting.remove(pod)
        if len(moves) == before:
            break
    for move in reversed(moves):
        _replace(packer, running, move.pod, Choice(move.was.node, move.was.devices, 0.0))
    return tuple(moves)


def _weighed(
    packer: Packer, running: RunningPods, pods: Sequence[int], usd: arrays.FloatArray, price: MovePrice
) -> list[PricedMove | None]:
    """Best move of each pod if it pays, else None."""
    placed = [running[pod] for pod in pods]
    node = np.array([p.node for p in placed], dtype=np.int64)
    without = nodes_without(packer.ledger, placed)
    after = packer.policy.worth(without, np.arange(len(placed)))
    before = packer.policy.worth(packer.ledger, node)
    if after is None or before is None:
        return [None] * len(pods)
    freed_usd = (after - before) * usd[node] * price.stay_h
    # By shape, the two places that cost fewest dollars an hour, with their cost in GPUs; one may be the pod's own node.
    places: dict[workloads.PodShape, list[Choice]] = {}
    moves: list[PricedMove | None] = []
    for pod, was, gain in zip(pods, placed, freed_usd.tolist(), strict=True):
        if was.shape not in places:
            cost, devices = packer.costs(was.shape)
            dollars, able = np.full(len(cost), np.inf), np.isfinite(cost)
            dollars[able] = cost[able] * usd[able]
            two = np.argsort(dollars, kind="stable")[:2]
            places[was.shape] = [Choice(int(n), int(devices[n]), float(cost[n])) for n in two if able[n]]
        to = next((choice for choice in places[was.shape] if choice.node != was.node), None)
        saving = gain - to.cost * float(usd[to.node]) * price.stay_h if to else 0.0
        pays = to is not None and saving > price.of(was.shape)
        moves.append(PricedMove(pod, was, to, saving, price.of(was.shape)) if to and pays else None)
    return moves


def _replace(packer: Packer, running: RunningPods, pod: int, choice: Choice) -> None:
    """Places a running pod elsewhere."""
    was = running.stop(pod)
    packer.remove(was.shape, was.node, was.devices)
    packer.place(was.shape, choice)
    running.start(pod, was.shape, choice)


def running_pods_of(snapshot: Snapshot) -> RunningPods:
    """Bound pods of a snapshot, numbered by their rows."""
    running, pods = RunningPods(), snapshot.pods
    for row in np.flatnonzero(pods.node != PENDING).tolist():
        running.start(row, pods.shapes[pods.shape[row]], Choice(int(pods.node[row]), int(pods.devices[row]), 0.0))
    return running


def movable_rows(snapshot: Snapshot) -> tuple[int, ...]:
    """Rows of the bound pods that may be moved one by one. Excludes members of gangs, which stay together."""
    pods = snapshot.pods
    rows: list[int] = np.flatnonzero(
        (pods.node != PENDING) & pods.movable & pods.may_be_stopped & (pods.gang < 0)
    ).tolist()
    return tuple(rows)


def defragmented(snapshot: Snapshot, packer: Packer, price: MovePrice, most_share: float) -> tuple[plans.Phase, ...]:
    """Moves that pay in a snapshot, as phases of a plan. At most `most_share` of the bound pods are moved.

    A move onto a node is in a later phase than the moves that leave it: until those are done, its place may be taken.

    packer: made for this snapshot, under a policy with `worth`. GPU types without a price never pay for a move.
    """
    running, names = running_pods_of(snapshot), snapshot.nodes.names
    usd = np.array([kind.price_per_hour for kind in snapshot.gpu_types], dtype=np.float64)
    most = int(most_share * len(running))
    phases: list[list[plans.Step]] = []
    left: set[int] = set()
    for move in moves_worth_their_price(packer, running, movable_rows(snapshot), usd, price, most):
        if not phases or move.choice.node in left:
            phases.append([])
            left = set()
        left.add(move.was.node)
        from_node, to_node = names[move.was.node], names[move.choice.node]
        action = actions.Move(snapshot.pods.names[move.pod], from_node, to_node, device_numbers(move.choice.devices))
        words = f"frees resources worth ${move.saving_usd:.2f} on {from_node}; moving it costs ${move.price_usd:.2f}"
        figures = {"saving_usd": move.saving_usd, "price_usd": move.price_usd}
        phases[-1].append(plans.Step(action, plans.Reason("WorthMoving", words, figures)))
    return tuple(plans.Phase(f"defragment-{number}", tuple(steps)) for number, steps in enumerate(phases, start=1))
