"""Background decider "polish": seeks nodes whose pods fit beside others, to empty them where that pays.

A search result is older than the plan that adopts it, so a proposal only names nodes. Whether emptying a node pays is
computed again in the snapshot of the adopting plan, with the same price of moving. Nothing else moves.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.actions import Move
from cluster.clock import Clock
from cluster.plans import Plan, Reason
from cluster.snapshot import PENDING, Snapshot
from controller.deciders.decider import PROPOSE_S, Proposal
from controller.deciders.decisions import Decisions
from placement.batch.consolidation import candidates, emptying
from placement.batch.problem import HostPrice
from placement.moves import MovePrice

MOST_TRIED = 400
"""Most nodes that one run examines: two seconds at 1,000 nodes. The next run continues after them."""
WORK_PER_S = 100_000.0
"""Work rate: nodes examined per second of deadline, times the nodes of the fleet. Half of what was measured."""
OUT_OF_TIME = Reason("PolishOutOfTime", "time ran out before all planned nodes were examined for emptying")


def polish_of(decisions: Decisions) -> "Polish | None":
    """The polish decider of these settings; None where it is off."""
    if not decisions.polish_share:
        return None
    return Polish(decisions.polish_share, decisions.move_price, decisions.batch.price)


@dataclass(frozen=True, slots=True)
class Polish:
    """The decider. Its memory names the node examined last, so that in a large fleet every node has its turn."""

    share: float
    """Largest fraction of the running pods that one plan moves."""
    price: MovePrice
    host: HostPrice
    clock: Clock = time.monotonic
    """Clock of the deadline only, which ends a run that takes far longer than it should."""
    name: str = "polish"
    within_s: float = PROPOSE_S

    def propose(self, snapshot: Snapshot, memory: bytes, deadline_s: float) -> Proposal:
        over_at_s = self.clock() + deadline_s
        # As many as a run of this many seconds examines, the same on any machine.
        most = min(MOST_TRIED, 1 + int(WORK_PER_S * deadline_s / max(1, len(snapshot.nodes))))
        order = _behind(memory, snapshot, candidates(snapshot, self.host))[:most]
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
        return Proposal(Plan(phases=phases, cut_short=cut_short), last)

    def adopt(self, snapshot: Snapshot, proposed: Plan) -> Plan:
        """Moves off those proposed nodes that it still pays to empty."""
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


def _behind(memory: bytes, snapshot: Snapshot, order: Sequence[int]) -> Sequence[int]:
    """The nodes in this order, starting after the remembered one if it is among them."""
    last = snapshot.nodes.names.row(memory.decode(errors="replace"))
    if last is None or last not in order:
        return order
    at = order.index(last) + 1
    return [*order[at:], *order[:at]]
