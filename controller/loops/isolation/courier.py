"""Courier: carries orders to the nodes and their reports back, over the agents' link. Any thread may use it.

Values are replaced whole: the link's thread reads orders and writes reports, the reporter's does the opposite.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from cluster.clock import Clock
from cluster.errors import UNREADABLE
from isolation.orders import ORDERS, REPORT, NodeReport, Orders, SandboxOrder

STALE_S = 15.0
"""Age from which a report no longer counts; agents send one a second."""


MOST = 2**53
"""Largest number in a report. Larger ones are exact in no metric, and those of hundreds of digits in none at all."""
LONGEST_LIFE = 128


@dataclass(frozen=True, slots=True)
class Heard:
    report: NodeReport
    at_s: float


class SandboxCourier:
    """Orders and reports of all nodes."""

    sends, hears = ORDERS, REPORT

    def __init__(self, clock: Clock, epoch: Callable[[], int]) -> None:
        """epoch: of the Lease; orders of an earlier one are refused by the nodes."""
        self._clock, self._epoch = clock, epoch
        self._orders: Mapping[str, Mapping[str, SandboxOrder]] | None = None
        self._sent: dict[str, tuple[Orders, bytes]] = {}
        self._heard: dict[str, Heard] = {}

    def set_orders(self, orders: Mapping[str, Mapping[str, SandboxOrder]] | None) -> None:
        """Orders by node; None: not known yet, so that nodes keep what they have."""
        self._orders = orders

    def mail_for(self, node: str) -> bytes | None:
        """Text for a node that has reported; the same one until its orders change. None: nothing to say."""
        orders = self._orders
        if orders is None:
            return None
        wanted, epoch = orders.get(node, {}), self._epoch()
        before = self._sent.get(node)
        if before is None or before[0].sandboxes != wanted or before[0].epoch != epoch:
            sequence = before[0].sequence + 1 if before is not None and before[0].epoch == epoch else 0
            made = Orders(node, epoch, sequence, wanted)
            before = self._sent[node] = (made, msgspec.json.encode(made))
        return before[1]

    def heard(self, node: str, text: bytes) -> str:
        """Takes a report; returns why it cannot be read, or nothing."""
        try:
            report = msgspec.json.decode(text, type=NodeReport)
        except UNREADABLE as error:
            return f"the report on sandboxes cannot be read: {error}"
        if report.node != node:
            return f"the report names node {report.node}"
        if not _can_be(report):
            return f"the report on sandboxes has a count below 0 or above {MOST}, or a session of a long name"
        self._heard = {**self._heard, node: Heard(report, self._clock())}
        return ""

    def reports(self) -> Mapping[str, NodeReport]:
        """Reports that are not stale, by node."""
        since_s = self._clock() - STALE_S
        return {node: heard.report for node, heard in self._heard.items() if heard.at_s >= since_s}


def _can_be(report: NodeReport) -> bool:
    numbers = [report.budget_bytes, report.reserved_bytes]
    for each in report.sandboxes.values():
        numbers += [each.agent_bytes, each.calls_bytes, each.running, each.queued, each.frozen, *each.happened.values()]
    return min(numbers) >= 0 and max(numbers) <= MOST and len(report.life) <= LONGEST_LIFE
