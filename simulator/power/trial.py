"""One run: a row, its requests, a policy, a control delay, a brake and faults; and the result."""

import heapq
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.collector import paused_collector
from simulator.power import agents as power_agents
from simulator.power.machine import DGX_A100
from simulator.power.policies import PERIOD_S, Readings, RowOrders, RowPolicy, periods_late
from simulator.power.requests import Requests, ServerPool
from simulator.power.row import Row

RIPPLE_W, RIPPLES = 0.5, 97
"""Ripple of meters: their last digit varies although the draw is constant, by up to this many watts, in this number of
recurring patterns. A meter that repeats itself to the last digit is stuck."""
JUDGED_UNTIL_S = 600.0
"""Requests of the last ten minutes are not judged: a run ends before they could be done."""

NOISE_W = 5.0
"""Part of a meter's error that does not depend on the draw, as a standard deviation: NVML states ±5 W."""

MakePolicy = Callable[[float], RowPolicy]
"""Constructor of a policy for a budget in watts; called again when a new controller starts."""


@dataclass(frozen=True, slots=True)
class TrialRules:
    """Parameters of a run besides its row and its policy."""

    budget_w: float = float("inf")
    delay_s: float = 2.0
    """Delay from an order to its effect: about 2 s through an agent on the server, 40 s through its management
    controller."""
    telemetry_s: float = 2.0
    """Delay from the end of a period until the policy has its reading."""
    brake: bool = True
    """Whether the row has a hardware brake."""
    faults: tuple[power_agents.Fault, ...] = ()
    safe_floor_w: FloatArray | float = float("inf")
    """Limit of each server whose lease has run out."""
    noise_share: float = 0.0
    """Standard deviation of each reading of a server as a fraction of its draw, beside NOISE_W; 0: meters without
    errors."""


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """Result of one pool of servers."""

    name: str
    of_class: int
    requests: int
    """Number of requests; of a job, of steps that ended, whose durations then stand in place of latencies."""
    unserved: int
    """Number of requests that still waited when the run ended; each counts with the time that it had waited."""
    p50_s: float
    """Median of the latencies, or of the durations of steps; NaN where there were none."""
    p99_s: float
    held_share: float
    """Fraction of its servers' time spent working slower than at full clock."""


@dataclass(frozen=True, slots=True, eq=False)
class TrialOutcome:
    """Result of a run. All of it is simulated."""

    policy: str
    servers: tuple[int, ...]
    for_s: float
    budget_w: float
    row_w: FloatArray
    """Mean draw of each period, shape (periods,)."""
    brakes: int
    over_s: float
    """Time above the budget, exact to the event."""
    breaker_share: float
    """Highest heat of the breaker: 1 opens it."""
    limit_changes: int
    pools: tuple[PoolOutcome, ...]
    named: tuple[tuple[float, int, str], ...] = ()
    """(instant, server, reason) of the servers that the policy found not to obey or not to be believed."""

    @property
    def peak_w(self) -> float:
        return float(self.row_w.max())

    @property
    def peak_share(self) -> float:
        return self.peak_w / self.budget_w

    def of_pool(self, name: str) -> PoolOutcome:
        return next(pool for pool in self.pools if pool.name == name)


def run_trial(
    pools: Sequence[ServerPool],
    requests: Requests,
    *,
    for_s: float,
    make_policy: MakePolicy,
    rules: TrialRules,
    seed: int = 0,
) -> TrialOutcome:
    """Outcome of serving the requests for this time under the policy.

    seed: determines the servers that faults affect.
    """
    with paused_collector():  # it makes no cycles
        return _Trial(pools, requests, make_policy, rules, seed).run(for_s)


class _Trial:
    """Loop of a run: every period the meter is read, the policy is called, and orders are sent."""

    def __init__(
        self,
        pools: Sequence[ServerPool],
        requests: Requests,
        make_policy: MakePolicy,
        rules: TrialRules,
        seed: int,
    ) -> None:
        self.pools, self.requests, self.rules = pools, requests, rules
        self.servers = servers = tuple(pool.servers for pool in pools)
        self.make_policy, self.policy = make_policy, make_policy(rules.budget_w)
        count = sum(servers)
        ends_w = [pool.machine.idle_w + pool.machine.highest_w for pool in pools]
        self.row = Row(pools, requests, budget_w=rules.budget_w)
        self.agents = power_agents.Agents(
            count,
            safe_floor_w=rules.safe_floor_w,
            clamp_w=np.repeat(ends_w, servers) / 2,
            faults=rules.faults,
            seed=seed,
            set_limit=self.row.limit,
        )
        self.struck: list[tuple[power_agents.Fault, BoolArray]] = [(f, f.strikes(count, seed)) for f in rules.faults]
        self.brake, self.heat = (
            power_agents.Brake(rules.budget_w, fitted=rules.brake),
            power_agents.BreakerHeat(power_agents.ROW_BREAKER, rules.budget_w),
        )
        self.brake_share = DGX_A100.share_at(power_agents.BRAKE_MHZ)
        self.edges = sorted({edge for fault in rules.faults for edge in (fault.from_s, fault.to_s)})
        self.sent = 0
        self.under_way: list[tuple[float, int, int, RowOrders]] = []
        """(instant of arrival, number of its sending, the controller's epoch, the order)."""
        self.ripple_w = np.random.default_rng(seed).uniform(-RIPPLE_W, RIPPLE_W, (RIPPLES, count))
        self.noise = np.random.default_rng((seed, 1))
        self.periods = 0
        self.frozen: Readings | None = None
        self.last_readings: Readings | None = None
        self.dead = False
        self.epoch = 0
        self.budget_w = rules.budget_w
        self.row_w = array("d")
        self.zeros = np.zeros(count)
        self.named: dict[int, tuple[float, int, str]] = {}

    def run(self, for_s: float) -> TrialOutcome:
        late = periods_late(self.rules.telemetry_s)
        pipe: list[Readings] = []
        for period in range(1, round(for_s / PERIOD_S) + 1):
            now_s = period * PERIOD_S
            self._until(now_s)
            pipe.append(self._read(now_s))
            if len(pipe) > late:
                self._decide(now_s, pipe.pop(0))
        held_s = np.split(self.row.held_s(), np.cumsum(self.servers)[:-1])
        return TrialOutcome(
            policy=self.policy.name,
            servers=self.servers,
            for_s=for_s,
            budget_w=self.rules.budget_w,
            row_w=np.array(self.row_w),
            brakes=self.brake.pulled,
            over_s=self.row.over_until_now_s(),
            breaker_share=self.heat.highest_share,
            limit_changes=self.agents.changes,
            pools=tuple(
                self._pool_outcome(number, for_s, float(held.mean()) / for_s) for number, held in enumerate(held_s)
            ),
            named=tuple(sorted(self.named.values())),
        )

    def _until(self, until_s: float) -> None:
        """Advances to an instant, handling everything that is due on the way."""
        while True:
            due_s = self.under_way[0][0] if self.under_way else np.inf
            edge_s = self.edges[0] if self.edges else np.inf
            expiry_s = np.inf if self.agents.expired else self.agents.expires_s
            next_s = min(due_s, edge_s, expiry_s)
            for at_s, on in self.brake.changes_until(min(next_s, until_s)):
                self.row.advance(at_s)
                self.agents.brake(self.brake_share if on else 1.0)
            if next_s > until_s:
                self.row.advance(until_s)
                return
            self.row.advance(next_s)
            if next_s == due_s:
                _, _, epoch, orders = heapq.heappop(self.under_way)
                if not self._holds("cut", next_s):
                    self.row.credit_back_s = orders.credit_back_s
                    self.agents.take(orders, next_s, epoch)
            elif next_s == expiry_s:
                self.agents.expire(next_s)
            else:
                self.edges.pop(0)
                # Handles the start or end of a fault.
                self.agents.refresh(next_s)
                if any(fault.kind == "reboot" and fault.from_s == next_s for fault in self.rules.faults):
                    heapq.heappush(self.edges, next_s + power_agents.AGENT_AFTER_BOOT_S)
                cut = sum(
                    fault.share for fault in self.rules.faults if fault.kind == "budget-cut" and fault.holds(next_s)
                )
                self.budget_w = (1 - cut) * self.rules.budget_w
                self.brake.budget_w = self.heat.budget_w = self.budget_w
                self.row.set_budget(self.budget_w)

    def _holds(self, kind: str, now_s: float) -> bool:
        faults = self.rules.faults
        return bool(faults) and any(fault.kind == kind and fault.holds(now_s) for fault in faults)

    def _read(self, now_s: float) -> Readings:
        """Readings of the meter at the breaker, and what telemetry makes of them."""
        server_w = self.row.close_window()
        row_w = float(np.add.reduce(server_w))
        self.row_w.append(row_w)
        self.brake.read(now_s, row_w)
        self.heat.read(PERIOD_S, row_w)
        self.periods += 1
        shown_w = server_w + self.ripple_w[self.periods % RIPPLES]
        if share := self.rules.noise_share:
            shown_w += self.noise.standard_normal(len(shown_w)) * (NOISE_W + share * server_w)
            row_w = float(np.add.reduce(shown_w))
        readings = Readings(
            at_s=self.zeros + now_s,
            server_w=shown_w,
            meter_at_s=now_s,
            row_w=row_w,
            cap_w=self.agents.reported_w,
            phase=self.row.phase.copy(),
            # A grant of another controller confirms nothing to this one.
            sequence=self.agents.sequence if self.agents.epoch == self.epoch else np.full(len(server_w), -1),
        )
        return self._with_telemetry_faults(readings, now_s) if self.rules.faults else readings

    def _with_telemetry_faults(self, true: Readings, now_s: float) -> Readings:
        """Reading after the faults of telemetry."""
        if self._holds("frozen", now_s):
            self.frozen = self.frozen or true
            return self.frozen
        if self._holds("frozen-fresh", now_s):
            self.frozen = self.frozen or true
            return replace(self.frozen, at_s=true.at_s, meter_at_s=now_s, sequence=true.sequence, cap_w=true.cap_w)
        self.frozen = None
        for fault, struck in self.struck:
            if fault.kind == "silent" and fault.holds(now_s):
                true = replace(true, at_s=np.where(struck, fault.from_s, true.at_s))
        return true

    def _decide(self, now_s: float, seen: Readings) -> None:
        if self._holds("killed", now_s):
            self.dead = True
            return
        if self.dead:
            self.policy, self.dead = self.make_policy(self.budget_w), False
            self.epoch += 1
        cut = self._holds("cut", now_s)
        if not cut:
            self.last_readings = seen
        if self.last_readings is None:
            return
        self.policy.set_budget(self.budget_w)
        orders = self.policy.step(
            now_s, self.last_readings
        )  # a controller that is cut off continues with its last readings
        if orders is not None and not cut:
            self.sent += 1
            heapq.heappush(self.under_way, (now_s + self.rules.delay_s, self.sent, self.epoch, orders))
        for server, why in self.policy.named().items():
            self.named.setdefault(server, (now_s, server, why))

    def _pool_outcome(self, number: int, for_s: float, held_share: float) -> PoolOutcome:
        requests, pool = self.requests, self.pools[number]
        mine: IntArray = np.flatnonzero((requests.of_pool == number) & (requests.at_s < for_s - JUDGED_UNTIL_S))
        latency_s = np.array(self.row.steps_s[number]) if pool.step_s else self.row.latency_s[mine].astype(np.float64)
        unserved = np.isnan(latency_s)
        # A request that still waits at the end has waited at least this long: leaving it out would reward a policy that
        # starves.
        if unserved.any():
            latency_s[unserved] = for_s - requests.at_s[mine][unserved]
        p50_s, p99_s = np.percentile(latency_s, [50, 99]) if len(latency_s) else (np.nan, np.nan)
        return PoolOutcome(
            name=pool.name,
            of_class=pool.of_class,
            requests=len(latency_s),
            unserved=int(unserved.sum()),
            p50_s=float(p50_s),
            p99_s=float(p99_s),
            held_share=held_share,
        )
