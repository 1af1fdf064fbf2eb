"""Running pods of a snapshot, as the replay of a stream knows them."""

import numpy as np

from cluster.snapshot import PENDING, Snapshot
from placement.engine.packer import Choice
from simulator.packing.replay import RunningPods


def running_pods_of(snapshot: Snapshot) -> RunningPods:
    """Bound pods of a snapshot, numbered by their rows."""
    running, pods = RunningPods(), snapshot.pods
    for row in np.flatnonzero(pods.node != PENDING).tolist():
        running.start(row, pods.shapes[pods.shape[row]], Choice(int(pods.node[row]), int(pods.devices[row]), 0.0))
    return running
