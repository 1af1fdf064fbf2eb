"""Arrival order of a trace's pods, until their requests exceed the fleet."""

import numpy as np

from cluster.arrays import IntArray
from cluster.snapshot import PodTable, Snapshot


def published_stream(trace: Snapshot, seed: int, until_share: float = 1.3) -> IntArray:
    """Arrivals of the FGD paper: every pod of the trace once, shuffled, then more of them drawn with replacement.

    trace: its pending pods arrive, its nodes are the capacity.
    until_share: fraction of the fleet's GPU capacity at which it stops; the pod that would pass it is not taken.
    Returns indices into `trace.pods.shapes`, in order of arrival.
    Source: USENIX ATC'23 (FGD), section 6.1, and its simulator, whose stop test counts one device of each pod, so that
    pods with several devices overshoot a little. A trace that requests more than the limit is cut off at it here. The
    simulator thins it by drawing pods to leave out, which is the same for a shuffled trace.
    """
    chance = np.random.default_rng(seed)
    shape = trace.pods.shape[trace.pods.pending]
    per_device, total = gpu_milli_of(trace.pods)
    limit = until_share * 1000.0 * float(trace.nodes.gpus.sum())
    first = chance.permutation(shape)
    arrived = np.cumsum(total[first])
    if len(first) and arrived[-1] > limit:
        return np.asarray(first[arrived <= limit], dtype=np.int64)
    stream = first.tolist()
    requested = int(arrived[-1]) if len(first) else 0
    while requested and requested + per_device[more := int(shape[chance.integers(len(shape))])] <= limit:
        stream.append(more)
        requested += int(total[more])
    return np.array(stream, dtype=np.int64)


def gpu_milli_of(pods: PodTable) -> tuple[IntArray, IntArray]:
    """Thousandths of a GPU that each of the table's shapes requests: of one device, and of all its devices together."""
    per_device = np.array([shape.gpu_milli for shape in pods.shapes], dtype=np.int64)
    total = np.array([shape.total_gpu_milli for shape in pods.shapes], dtype=np.int64)
    return per_device, total
