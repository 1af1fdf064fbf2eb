"""Lease violations: when a server first drew more than its lease and bursts allow; before that it looks honest.

For each server with a fault, the account of an honest agent with the same leases is kept for comparison.
"""

from collections.abc import Sequence

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from power.leases.holder import may_burst
from power.safety.bursts import credit_after
from simulator.power.faults import Fault
from simulator.power.row import AGENT_LOOKS_S

_ERR_SHARE = 0.05
"""Error of limiters and meters: a draw that exceeds a limit by less is no violation."""


class LeaseViolations:
    """Comparison of faulty servers' draws with their leases. Nothing of it reaches the policy."""

    def __init__(self, struck: Sequence[tuple[Fault, BoolArray]], servers: int, highest_w: float) -> None:
        """struck: faults, and the servers that each affects. highest_w: highest draw of a server."""
        self.at_s: dict[int, float] = {}
        """Instant when a server first drew what no honest one could have drawn, by server."""
        self._struck, self._highest_w = struck, highest_w
        self._credit_j: FloatArray = np.zeros(servers)
        self._bursting: BoolArray = np.zeros(servers, dtype=np.bool_)
        self._before: tuple[FloatArray, FloatArray] | None = None

    def read(
        self,
        now_s: float,
        for_s: float,
        draw_w: FloatArray,
        granted: tuple[FloatArray, FloatArray, FloatArray],
        credit_back_s: float,
    ) -> None:
        """Records a period of `for_s` seconds with this mean draw, shape (servers,).

        granted: the limits, the joules of bursts above them and the highest draw of bursts, as last sent, shape
        (servers,) each. Earlier values also count where they allowed more, since a period may begin with them.
        """
        cap_w, burst_j, burst_w = granted
        before_w, before_burst_w = self._before or (cap_w, burst_w)
        self._before = (cap_w, burst_w)
        lease_w = np.minimum(np.maximum(cap_w, before_w), self._highest_w) * (1 + _ERR_SHARE)
        bursts_w = np.minimum(np.maximum(burst_w, before_burst_w), self._highest_w) * (1 + _ERR_SHARE)
        most_w = np.maximum(lease_w, bursts_w)
        bursting = may_burst(self._credit_j, self._bursting, burst_j)
        looks_j = np.where(bursting | self._bursting, AGENT_LOOKS_S * (most_w - lease_w), 0.0)
        may_j = np.where(bursting, np.maximum(self._credit_j, 0.0), 0.0) + looks_j
        above_j = (draw_w - lease_w) * for_s
        offends = (above_j > may_j) | (draw_w > most_w)
        for fault, struck in self._struck:
            for server in np.flatnonzero(offends & struck).tolist() if fault.holds(now_s) else ():
                self.at_s.setdefault(server, now_s)
        self._credit_j = np.maximum(credit_after(self._credit_j, draw_w, lease_w, burst_j, for_s, credit_back_s), 0.0)
        self._bursting = may_burst(self._credit_j, bursting, burst_j)
