"""Plans of batches: where each pod is, and the time that planning takes."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from cluster.actions import Bind
from cluster.clock import Clock
from cluster.snapshot import Snapshot, device_mask
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
