"""Accounts of devices: which namespace and team held how many of which type, and what they cost, used or idle. Pure."""

from collections import defaultdict

import numpy as np

from cluster.snapshot import PENDING, Snapshot
from controller.snapshot.namespace_bounds import first_by_name
from controller.snapshot.teams import NO_TYPE

MOST_NAMESPACES = 512
"""Namespaces with series of their own, the first by name: whoever makes namespaces decides how many there are."""
OTHERS = "(others)"

Account = tuple[str, str, str, str]
"""Team, namespace, GPU type, and used or idle."""


def accounts_of(now: Snapshot) -> dict[Account, tuple[float, float]]:
    """Devices and dollars per hour of each account. Idle devices are of no namespace."""
    team_of = {space: team.name for team in now.teams for space in team.namespaces}
    types, prices = (*now.gpu_type_names, NO_TYPE), now.device_prices()
    gpus = np.array([each.total_gpu_milli for each in now.pods.shapes])[now.pods.shape] / 1000
    found: defaultdict[Account, np.ndarray] = defaultdict(lambda: np.zeros(2))
    rows = np.flatnonzero((now.pods.node != PENDING) & (gpus > 0)).tolist()
    spaces = {row: now.pods.names[row].partition("/")[0] for row in rows}
    shown = {
        each.partition("/")[2] for each in first_by_name((f"/{each}" for each in {*spaces.values()}), MOST_NAMESPACES)
    }
    left = now.nodes.gpus.astype(np.float64)
    for row in rows:
        node, space = int(now.pods.node[row]), spaces[row] if spaces[row] in shown else OTHERS
        account = team_of.get(spaces[row], ""), space, types[now.nodes.gpu_type[node]], "used"
        found[account] += gpus[row] * np.array([1.0, prices[node]])
        left[node] -= gpus[row]
    for node in np.flatnonzero(left > 0).tolist():
        found["", "", types[now.nodes.gpu_type[node]], "idle"] += left[node] * np.array([1.0, prices[node]])
    return {account: (float(devices), float(usd)) for account, (devices, usd) in found.items()}
