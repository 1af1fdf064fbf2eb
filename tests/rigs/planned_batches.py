"""Plans of batches: where each pod is, and the time that planning takes."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from cluster.actions import Bind
from cluster.clock import Clock
from cluster.snapshot import Snapshot, device_mask
from tests.builders import manifests
from tests.builders.plan_check import Seat

T = TypeVar("T")


def timed(work: Callable[[], T], clock: Clock = time.process_time) -> tuple[float, T]:
    """(seconds, result): CPU seconds of this process, which other work on the machine changes little."""
    began = clock()
    done = work()
    return clock() - began, done


def seats_of(seen: Snapshot, binds: Sequence[Bind]) -> list[Seat]:
    """Rows of pods and nodes, and the devices, of these binds."""
    pods, nodes = seen.pods.names, seen.nodes.names
    rows = ((pods.row(bind.pod), nodes.row(bind.node), device_mask(bind.devices)) for bind in binds)
    return [(pod, node, devices) for pod, node, devices in rows if pod is not None and node is not None]


def running_groups(count: int) -> Iterator[manifests.Object]:
    """Gangs of two members with a GPU each, all running, on nodes of eight."""
    for number in range(count):
        if number % 4 == 0:
            yield manifests.node(f"n{number // 4}", 8)
        yield manifests.gang(f"g{number}", 2)
        for member in range(2):
            device = {"tonnage.dev/devices": str(2 * (number % 4) + member)}
            labels, on = {"tonnage.dev/gang": f"g{number}"}, f"n{number // 4}"
            yield manifests.pod(
                f"g{number}-{member}", 1, on=on, labels=labels, annotations=device, schedulerName="tonnage"
            )
