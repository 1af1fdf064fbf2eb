"""Units that wait beside less important pods: why none of these is stopped, and which are left to kube-scheduler, which
makes room by preemption among its own.
"""

from collections.abc import Iterable

import numpy as np

from cluster import actions, occupancy, plans
from cluster.snapshot import PENDING, device_numbers
from cluster.workloads import PodShape
from placement.packing.draft import ENDING, NEVER, PackingDraft
from placement.packing.units import Unit

MOST_EXPLAINED = 64
"""Largest number of different asks that a plan explains so. Chosen: each takes a pass over the pods."""
OUT_OF_STOPS = "OutOfStops"
"""Code of the reason of a unit for which as many pods as may be were stopped in vain. An alert looks for it."""
MOST_NAMED = 3
"""Largest number of budgets, or words of the API server, that a reason names."""


class SparedPods:
    """Explanation of the units that a draft leaves waiting beside pods of lower priority."""

    def __init__(self, draft: PackingDraft) -> None:
        self._draft = draft
        self._known: dict[tuple[int, int], str] = {}

    def added_to(self, reason: plans.Reason, unit: Unit) -> plans.Reason:
        """The reason, with what keeps the pods of lower priority that stand in the way."""
        draft, row = self._draft, unit.rows[0]
        if unit.label(draft.snapshot) in draft.snapshot.out_of_stops:
            words = "as many pods as may be were stopped for it within the hour, in vain, so no more are"
            return plans.Reason(OUT_OF_STOPS, f"{reason.words}; {words}", reason.figures)
        ask = (draft.shape_number(row), unit.priority)
        if ask not in self._known:
            if len(self._known) >= MOST_EXPLAINED or not draft.may_preempt(row):
                return reason
            self._known[ask] = self._words(draft.shape(row), unit.priority)
        words = self._known[ask]
        return plans.Reason(reason.code, f"{reason.words}; {words}", reason.figures) if words else reason

    def _words(self, shape: PodShape, priority: int) -> str:
        draft, pods = self._draft, self._draft.snapshot.pods
        lower = (draft.node != PENDING) & (draft.priority < priority) & (draft.resistance != ENDING)
        budgets = draft.snapshot.budgets
        if not lower.any() or not ((draft.resistance[lower] == NEVER).any() or budgets):
            return ""
        rows = np.flatnonzero(lower)
        nodes = draft.packer.eligible(shape) & draft.free_without(rows).fits(shape)
        there = [row for row in rows.tolist() if nodes[draft.node[row]]]
        if not there:
            return ""
        kept = []
        strangers = [] if pods.strangers is None else [row for row in there if pods.strangers[row]]
        settled = set() if pods.settled is None else {row for row in there if pods.settled[row]}
        if others := [row for row in strangers if row not in settled]:
            kept.append(f"{len(others)} of other schedulers")
        if settled:
            refused = dict.fromkeys(
                words for row in settled if (words := draft.snapshot.refused_stops.get(pods.names[row]))
            )
            of_server = f" ({'; '.join([*refused][:MOST_NAMED])})" if refused else ""
            kept.append(f"{len(settled)} that ask to stay or may not be stopped now{of_server}")
        names = {pods.names[row] for row in there}
        short = [each.name for each in budgets if len(names & {*each.pods}) > each.allowed]
        if short:
            more = f" and {len(short) - MOST_NAMED} more" if len(short) > MOST_NAMED else ""
            kept.append(f"those of the disruption budget{'s' * (len(short) > 1)} {', '.join(short[:MOST_NAMED])}{more}")
        words = f"{nodes.sum()} would have room without pods of lower priority, but of these stay {', '.join(kept)}"
        return words if kept else ""


MOST_ASKS = 64
"""Largest number of different asks for which a plan looks for such a node. Chosen: each takes a pass over the pods."""
CANDIDATES = 4
"""Nodes that are examined in detail for one pod, those where least is missing first."""


def left_to_kube_scheduler(draft: PackingDraft, left: Iterable[Unit]) -> dict[int, plans.Step]:
    """Step of each of these pods for which kube-scheduler can make room, by row; at most one on a node.

    Gangs wait: kube-scheduler makes room pod by pod, and a part of a gang would run.
    """
    if draft.snapshot.pods.strangers is None:
        return {}
    steps, used, asks = dict[int, plans.Step](), set[int](), set[tuple[int, int]]()
    for unit in left:
        row, ask = unit.rows[0], (draft.shape_number(unit.rows[0]), unit.priority)
        if unit.gang >= 0 or not draft.may_preempt(row) or ask in asks:
            continue
        step = None if len(asks) >= MOST_ASKS else _release(draft, row, used)
        if step is None:
            asks.add(ask)
        else:
            steps[row] = step
    return steps


def _release(draft: PackingDraft, row: int, used: set[int]) -> plans.Step | None:
    snapshot, shape, priority = draft.snapshot, draft.shape(row), int(draft.priority[row])
    # Where the pod would fit without those that kube-scheduler stops for it; not where it might stop one that is to
    # stay, since it does not ask.
    pods, ledger = snapshot.pods, draft.packer.ledger
    now, count = ledger.free, len(ledger.cpu_milli)
    lower = (draft.node != PENDING) & (pods.priority < priority)
    stays = np.zeros(len(pods), dtype=np.bool_) if pods.settled is None else pods.settled
    leaves = lower & pods.strangers & ~stays
    leaves[draft.budgets.covered] = False
    room = draft.free_without(np.flatnonzero(leaves)).fits(shape)
    is_wide = np.array([each.gpus > 0 for each in pods.shapes], dtype=np.bool_)
    settled = np.flatnonzero(lower & stays)
    with_gpus = settled[is_wide[pods.shape[settled]]] if shape.gpus else settled
    is_short = (now.cpu_milli < shape.cpu_milli) | (now.memory_bytes < shape.memory_bytes)
    at_risk = np.bincount(draft.node[with_gpus], minlength=count) > 0
    at_risk |= is_short & (np.bincount(draft.node[settled], minlength=count) > 0)
    nodes = draft.packer.eligible(shape) & room & ~at_risk
    nodes[list(used)] = False
    free = ledger.gpu_milli if shape.gpus else ledger.cpu_milli[:, None]
    rows = np.flatnonzero(nodes)
    for node in rows[np.lexsort((rows, -free[rows].sum(axis=1)))][:CANDIDATES].tolist():
        mark = draft.mark
        victims = occupancy.kube_schedulers(snapshot.pods, draft.budgets, draft.node, node, priority)
        for each in victims:
            draft.unseat(each)
        choice = draft.packer.choose(shape, node)
        draft.roll_back(mark)
        if choice is None:
            continue
        used.add(node)
        action = actions.Release(snapshot.pods.names[row], snapshot.nodes.names[node], device_numbers(choice.devices))
        words = f"fits only without some of {len(victims)} pods of lower priority that are not Tonnage's to stop"
        return plans.Step(action, plans.Reason("LeftToKubeScheduler", words, {"in_the_way": float(len(victims))}))
    return None
