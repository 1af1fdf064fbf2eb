"""Accounts of devices: which namespace and team held how many of which type, and what they cost, used or idle. Pure."""

import numpy as np

from cluster.snapshot import PENDING, Snapshot
from controller.snapshot.teams import NO_TYPE

MOST_ACCOUNTS = 4096
"""Accounts with series of their own in the life of a process: whoever makes namespaces decides how many there are."""
OTHERS = "(others)"
"""Namespace of the accounts past that."""

Account = tuple[str, str, str, str]
"""Team, namespace, GPU type, and used or idle."""


def accounts_of(now: Snapshot) -> dict[Account, tuple[float, float]]:
    """Devices and dollars per hour of each account. Idle devices are of no namespace."""
    team_of = {space: team.name for team in now.teams for space in team.namespaces}
    nodes, types, prices = now.nodes, (*now.gpu_type_names, NO_TYPE), now.device_prices()
    gpus = np.array([each.total_gpu_milli for each in now.pods.shapes])[now.pods.shape] / 1000
    rows = np.flatnonzero((now.pods.node != PENDING) & (gpus > 0))
    spaces, on = [now.pods.names[row].partition("/")[0] for row in rows.tolist()], now.pods.node[rows]
    shown = sorted(set(spaces))
    number = {space: n for n, space in enumerate(shown)}
    idle = np.maximum(0.0, nodes.gpus - np.bincount(on, gpus[rows], len(nodes)))
    holders = (*((team_of.get(each, ""), each, "used") for each in shown), ("", "", "idle"))
    which = np.array([number[each] for each in spaces] + [len(shown)] * len(nodes), dtype=np.int64)
    node, devices = np.append(on, np.arange(len(nodes))), np.append(gpus[rows], idle)
    held, usd = np.zeros((2, len(holders), len(types)))
    np.add.at(held, (which, nodes.gpu_type[node]), devices)
    np.add.at(usd, (which, nodes.gpu_type[node]), devices * prices[node])
    return {
        (team, space, types[kind], state): (float(held[row, kind]), float(usd[row, kind]))
        for row, (team, space, state) in enumerate(holders)
        for kind in np.flatnonzero(held[row] > 0).tolist()
    }
