"""Quotas of GPUs, in thousandths, by namespace: pods past them wait, whatever is free.

A ResourceQuota of Kubernetes counts extended resources, of which a share of a GPU requests none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from cluster.arrays import IntArray
from cluster.pods import PENDING
from cluster.scaling import without_pods
from cluster.snapshot import Snapshot
from cluster.workloads import LeftOut

EXCEEDED = "QuotaExceeded"


def within_quotas(snapshot: Snapshot, most_milli: Mapping[str, int]) -> Snapshot:
    """The snapshot without pending pods past the quota of their namespace, which are left out with the reason.

    What runs counts first, then what waits: by priority, then by name, the waiting members of a gang as one. Those that
    do not fit beside what comes before them are left out. A whole GPU counts 1000.
    most_milli: quota by namespace, thousandths of GPUs.
    """
    if not most_milli:
        return snapshot
    pods, left_out, rows = snapshot.pods, list[LeftOut](), list[int]()
    asked = np.array([shape.gpus * shape.gpu_milli for shape in pods.shapes], dtype=np.int64)[pods.shape]
    held = dict.fromkeys(most_milli, 0)
    waiting: dict[tuple[str, object], list[int]] = {}
    for row, name in enumerate(pods.names):
        namespace = name.partition("/")[0]
        if namespace not in held or not asked[row]:
            continue
        if pods.node[row] != PENDING:
            held[namespace] += int(asked[row])
        else:
            gang = int(pods.gang[row])
            waiting.setdefault((namespace, name if gang < 0 else gang), []).append(row)
    for (namespace, _), members in sorted(waiting.items(), key=lambda each: _turn(each[1], pods.priority)):
        more, most = sum(asked[members].tolist()), most_milli[namespace]
        if held[namespace] + more <= most:
            held[namespace] += more
            continue
        rows += members
        words = (
            f"asks for {_together(members)}{more} thousandths of a GPU where the quota of its namespace is {most} and "
            f"{held[namespace]} are held or asked for before it; see tonnage.dev/gpu-milli in its ResourceQuotas"
        )
        left_out += [LeftOut(pods.names[row], EXCEEDED, words) for row in members]
    if not rows:
        return snapshot
    return replace(snapshot, pods=without_pods(pods, rows), left_out=(*snapshot.left_out, *left_out))


def _turn(members: Iterable[int], priority: IntArray) -> tuple[int, int]:
    """Place in the order of those that wait; rows are in the order of names."""
    rows = list(members)
    return -int(priority[rows].max()), min(rows)


def _together(members: list[int]) -> str:
    return f"with the {len(members) - 1} others of its gang " if len(members) > 1 else ""
