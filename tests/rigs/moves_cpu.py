"""CPU of plans that have nothing to move, with moves and without, in pairs.

python -m tests.rigs.moves_cpu [PAIRS]

1,000 nodes of 8 GPUs whose pods all may be moved: nothing waits; 500 pods come that fit; 500 wait that nobody can help.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

from cluster.actions import Move
from cluster.snapshot import Snapshot
from placement.engine.packer import Packer
from placement.move_price import MovePrice
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Pod, node, pod, world

NODES = [node(f"n{n:04d}", gpus=8) for n in range(1000)]


def running(per_node: int) -> list[Pod]:
    names = ((n, d) for n in range(len(NODES)) for d in range(per_node))
    return [pod(f"a/r{n}-{d}", 1, on=f"n{n:04d}", devices=(d,), movable=True) for n, d in names]


def waiting(count: int, gpus: int) -> list[Pod]:
    return [pod(f"b/w{n}", gpus) for n in range(count)]


FLEETS: Mapping[str, Sequence[Pod]] = {
    "nothing waits": running(7),
    "500 come that fit": [*running(7), *waiting(500, 1)],
    "500 wait, the fleet is full": [*running(8), *waiting(500, 2)],
}


def cpu_s(seen: Snapshot, moves: MovePrice | None) -> float:
    packers = [Packer(seen, BestFit()) for _ in range(1 if seen.pods.pending.any() else 50)]
    began = time.process_time()
    plans = [pack(seen, packer, moves=moves) for packer in packers]
    took_s = time.process_time() - began
    assert not [each for plan in plans for each in plan.actions if isinstance(each, Move)], "there was nothing to move"
    return took_s / len(plans)


def ratios(seen: Snapshot, pairs: int) -> list[float]:
    """CPU with moves over that without, pair by pair; which of a pair comes first takes turns."""
    found = []
    for pair in range(pairs):
        order = (None, MovePrice()) if pair % 2 else (MovePrice(), None)
        took = {moves is None: cpu_s(seen, moves) for moves in order}
        found.append(took[False] / took[True])
    return found


def main() -> None:
    pairs = int((sys.argv[1:] or ["21"])[0])
    for name, pods in FLEETS.items():
        found = ratios(seen := world(NODES, pods), pairs)
        usual_ms = 1000 * min(cpu_s(seen, None) for _ in range(3))
        print(f"{name}: {median(found):.3f} × ({usual_ms:.2f} ms without)", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
