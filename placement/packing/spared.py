"""Spared pods: why no pod is stopped for one that waits, although less important ones hold what it needs."""

import numpy as np

from cluster import plans
from cluster.snapshot import PENDING
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
