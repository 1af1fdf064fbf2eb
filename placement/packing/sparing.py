"""Victims that need not be stopped after all: they keep the place where they run."""

from collections.abc import Iterable, Sequence

from cluster.power_floors import held_devices
from cluster.snapshot import PENDING, device_numbers
from placement.packing.draft import Draft


def spare_victims(draft: Draft) -> None:
    """Puts pods back that a preemption stopped, where nothing has taken their place.

    A preemption may have served a pod that a more important one then replaced, and a victim may have found a place
    elsewhere while its own stayed free. The most important return first.
    """
    is_spared = True
    while is_spared:
        leaving, _ = draft.changed()
        groups = sorted(stopped_together(draft, leaving), key=lambda rows: (-draft.priority[rows[0]], rows))
        is_spared = sum(_return(draft, rows) for rows in groups) > 0


def stopped_together(draft: Draft, leaving: Iterable[int]) -> list[tuple[int, ...]]:
    """These leaving pods in groups of which all leave or none: a gang that falls below its minimum, or a single pod."""
    pods, gangs, alone = draft.snapshot.pods, dict[int, list[int]](), list[tuple[int, ...]]()
    for row in leaving:
        if pods.gang[row] < 0:
            alone.append((row,))
        else:
            gangs.setdefault(int(pods.gang[row]), []).append(row)
    for gang, rows in gangs.items():
        ran = sum(bool(pods.node[row] != PENDING) for row in draft.members(gang))
        if ran - len(rows) >= draft.snapshot.gangs[gang].min_members:
            alone += [(row,) for row in rows]
        else:
            alone.append(tuple(rows))
    return alone


def _return(draft: Draft, rows: Sequence[int]) -> bool:
    """Puts these pods back where they run, if all of them fit there now."""
    if not _may_return(draft, rows):
        return False
    mark = draft.mark
    for row in rows:
        if draft.node[row] != PENDING:
            draft.unseat(row)
    for row in rows:
        if not _fits_where_it_runs(draft, row):
            draft.roll_back(mark)
            return False
        draft.reseat(row)
    return True


def _may_return(draft: Draft, rows: Sequence[int]) -> bool:
    """Whether the gang of these pods, if they are all of it that ran, has no member that now starts elsewhere."""
    pods, gang = draft.snapshot.pods, int(draft.snapshot.pods.gang[rows[0]])
    if gang < 0:
        return True
    joining = any(draft.node[row] != PENDING and pods.node[row] == PENDING for row in draft.members(gang))
    return len(rows) == 1 or not joining


def _fits_where_it_runs(draft: Draft, row: int) -> bool:
    pods, ledger, shape = draft.snapshot.pods, draft.packer.ledger, draft.shape(row)
    node, devices = int(pods.node[row]), list(device_numbers(int(pods.devices[row])))
    if ledger.cpu_milli[node] < shape.cpu_milli or ledger.memory_bytes[node] < shape.memory_bytes:
        return False
    gpu_milli = ledger.gpu_milli[node : node + 1].copy()
    if (gpu_milli[0, devices] < shape.gpu_milli).any():
        return False
    gpu_milli[0, devices] -= shape.gpu_milli
    held = int(held_devices(gpu_milli, ledger.gpus[node : node + 1])[0])
    return draft.packer.floors is None or draft.packer.floors.bears(node, held)
