"""Free resources of nodes if one pod were gone, for many pods at once, without touching the ledger."""

from collections.abc import Sequence

import numpy as np

from cluster.snapshot import Free
from placement.engine.ledger import Ledger
from placement.moves.running_pods import Placed


def nodes_without(ledger: Ledger, pods: Sequence[Placed]) -> Ledger:
    """Ledger with one row per pod: the pod's node without it. Several pods of one node give several rows."""
    node = np.array([pod.node for pod in pods], dtype=np.int64)
    asks = np.array([(p.shape.cpu_milli, p.shape.memory_bytes, p.shape.gpu_milli, p.devices) for p in pods])
    cpu, memory, milli, devices = asks.astype(np.int64).reshape(-1, 4).T
    held = devices[:, None] >> np.arange(ledger.gpu_milli.shape[1]) & 1
    free = Free(
        cpu_milli=ledger.cpu_milli[node] + cpu,
        memory_bytes=ledger.memory_bytes[node] + memory,
        gpu_milli=ledger.gpu_milli[node] + held * milli[:, None],
    )
    return Ledger(free, ledger.gpus[node], ledger.gpu_type[node])
