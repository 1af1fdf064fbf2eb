"""Polish: between plans, nodes are sought whose pods fit beside others, and emptied where that pays.

What a search finds is older than the plan that takes it up, so a proposal only says where to look: whether emptying a
node pays is weighed again, in the snapshot of that very plan and with the same price of moving. Nothing moves else.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cluster.actions import Move
from cluster.plans import Plan, Reason
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.background import Thought
from controller.deciders.decisions import Decisions
from placement.batch.consolidation import candidates, emptying
from placement.batch.problem import HostPrice
from placement.moves.defragmentation import MovePrice

MOST_TRIED = 400
"""Nodes that one thought looks at at most: two seconds at 1,000 nodes. The next thought goes on behind them."""
WORK_PER_S = 100_000.0
"""Nodes that are looked at for each second that is given, times the nodes of the fleet: half of what was measured."""
OUT_OF_TIME = Reason("PolishOutOfTime", "time for emptying nodes ran out before the work for it was done")


def polish_of(decisions: Decisions) -> "Polish | None":
    """None where it is not asked for."""
    if not decisions.polish_share:
        return None
    return Polish(decisions.polish_share, decisions.move_price, decisions.batch.price)


@dataclass(frozen=True, slots=True)
class Polish:
    """Remembers the name of the node that it looked at last, so that in a large fleet every node has its turn."""

    share: float
    """Of the running pods, which one plan moves at most."""
    price: MovePrice
    host: HostPrice
    clock: Callable[[], float] = time.monotonic
    """For the deadline alone, which ends a thought that takes far longer than it should."""
    name: str = "polish"

    def think(self, snapshot: Snapshot, memory: bytes, deadline_s: float) -> Thought:
        over_at_s = self.clock() + deadline_s
        order = _behind(memory, snapshot, candidates(snapshot, self.host))[: _most_tried(snapshot, deadline_s)]
        last, cut_short = memory, tuple[Reason, ...]()

        def nodes() -> Iterator[int]:
            nonlocal last, cut_short
            for node in order:
                if self.clock() >= over_at_s:
                    cut_short = (OUT_OF_TIME,)
                    return
                last = snapshot.nodes.names[node].encode()
                yield node

        phases = emptying(snapshot, nodes(), self.price, self.host, most_moves=self._most(snapshot))
        return Thought(Plan(phases=phases, cut_short=cut_short), last)

    def adopt(self, snapshot: Snapshot, proposed: Plan) -> Plan:
        """Of the nodes that the proposal empties those which it still pays to empty."""
        rows = snapshot.nodes.names.row
        named = dict.fromkeys(action.from_node for action in proposed.actions if isinstance(action, Move))
        if not named:
            return Plan(cut_short=proposed.cut_short)
        able = set(candidates(snapshot, self.host))
        nodes = [row for name in named if (row := rows(name)) is not None and row in able]
        phases = emptying(snapshot, nodes, self.price, self.host, most_moves=self._most(snapshot))
        return Plan(phases=phases, cut_short=proposed.cut_short)

    def _most(self, snapshot: Snapshot) -> int:
        return int(self.share * int((snapshot.pods.node != PENDING).sum()))


def _most_tried(snapshot: Snapshot, within_s: float) -> int:
    """Nodes that a thought of so many seconds looks at, on any machine."""
    return min(MOST_TRIED, 1 + int(WORK_PER_S * within_s / max(1, len(snapshot.nodes))))


def _behind(memory: bytes, snapshot: Snapshot, order: Sequence[int]) -> Sequence[int]:
    """The nodes in this order, beginning behind the one that is remembered, if it is among them."""
    last = snapshot.nodes.names.row(memory.decode(errors="replace"))
    if last is None or last not in order:
        return order
    at = order.index(last) + 1
    return [*order[at:], *order[:at]]
