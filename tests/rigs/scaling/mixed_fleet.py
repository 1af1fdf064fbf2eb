"""Simulated service on several GPU types with finite stock: its mixes, the rate that instances serve, and its bill."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray, Names
from cluster.demand import ThroughputProfile
from cluster.errors import ConfigError, Mistake
from cluster.nodes import NodeTable
from cluster.plans import Reason
from cluster.snapshot import PodTable, Snapshot
from cluster.workloads import GpuType, InstanceType, ModelService
from placement.budget import Budget
from placement.mix.optimizer import answer_mix, work_of
from placement.mix.problem import MixAnswer, MixQuestion, Need
from placement.mix.problem_builder import need_of
from placement.stock import Stock
from simulator.scaling.replay import LoadScenario
from simulator.scaling.traces import DAY_S

Counts = tuple[int, ...]
"""Instances by GPU type, in the order of the service's types."""
GAP = 0.001
"""Relative distance from the proven bound at which a mix is good enough: that of the operator."""
WITHIN_S = 2.0
"""Nominal seconds of solver work for one mix: the operator's deadline of a plan."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedService:
    """One service, and the hardware that it may use. Every instance holds one GPU."""

    fleet: Snapshot
    """GPU types with their inventories, the throughput profiles, and the service alone."""

    @property
    def service(self) -> ModelService:
        return self.fleet.services[0]

    @property
    def types(self) -> tuple[str, ...]:
        return self.fleet.gpu_type_names

    @property
    def prices_per_hour(self) -> tuple[float, ...]:
        return tuple(each.price_per_hour for each in self.fleet.gpu_types)

    @property
    def inventory(self) -> dict[str, Stock]:
        return {each.name: Stock(each.inventory) for each in self.fleet.gpu_types if each.inventory is not None}

    def seen(self, at_s: float, counts: Counts) -> Snapshot:
        """Snapshot with these instances requested."""
        now = replace(self.service, replicas=self.by_type(counts))
        return replace(self.fleet, at_s=at_s, services=(now,))

    def by_type(self, counts: Counts) -> dict[InstanceType, int]:
        return {InstanceType(name): count for name, count in zip(self.types, counts, strict=True)}

    def need(self, rate_per_s: float, *, raw: bool = False) -> Need:
        """Need at a request rate. raw: without headroom. Raises ConfigError where no profile meets the SLO."""
        demand = self.service.demand
        at_rate = replace(
            self.service,
            demand=None if demand is None else replace(demand, rate_per_s=rate_per_s),
            headroom_share=0.0 if raw else self.service.headroom_share,
        )
        found = need_of(at_rate, self.fleet)
        if isinstance(found, Reason):
            raise ConfigError(Mistake(self.service.name, found.words))
        return found

    def mix(self, rate_per_s: float, stock: Mapping[str, Stock] | None = None) -> MixAnswer | Reason:
        """Cheapest mix for a request rate. stock: that of the fleet by default; empty: unlimited."""
        held = self.inventory if stock is None else stock
        return answer_mix(MixQuestion((self.need(rate_per_s),), held), Budget(work_of(WITHIN_S)), gap=GAP)

    def counts(self, rate_per_s: float, stock: Mapping[str, Stock] | None = None) -> Counts:
        """Instances of the cheapest mix, likewise. Raises ConfigError where the stock does not hold the rate."""
        answer = self.mix(rate_per_s, stock)
        if isinstance(answer, Reason):
            raise ConfigError(Mistake(f"{rate_per_s:.1f} requests/s", answer.words, "add stock, or lower the rate"))
        return self.in_order(answer)

    def in_order(self, answer: MixAnswer) -> Counts:
        """Instances of an answer by GPU type; a type without a profile has none."""
        offers = self.need(1.0).offers
        found = {o.gpu_type: int(n) for o, n in zip(offers, answer.mixes[0].instances, strict=True)}
        return tuple(found.get(name, 0) for name in self.types)


def fleet_of(
    service: ModelService, gpu_types: Sequence[GpuType], profiles: Sequence[ThroughputProfile]
) -> MixedService:
    """The service on these GPU types, whose inventories are its stock."""
    none = np.zeros(0, dtype=np.int64)
    nodes = NodeTable(Names(()), none, none, none, none, none.astype(np.bool_), (), ())
    pods = PodTable(Names(()), none, (), none, none, none, none, (), none.astype(np.bool_))
    return MixedService(Snapshot(0.0, tuple(gpu_types), nodes, pods, services=(service,), profiles=tuple(profiles)))


PRECISION = 0.005
"""Relative precision to which a capacity is known; the served rate is the lower end."""
ROUTING_WORK = 2_000.0
"""Work for one routing, in simplex iterations; instances for which it finds none count as insufficient."""
_ANY_MIX = 0.99
"""Gap at which the search ends with the first mix that it finds: the instances exist, so their price does not
matter."""


@dataclass(slots=True)
class _Bracket:
    served: float = 0.0
    """Highest rate that is known to be served."""
    missed: float = float("inf")
    """Lowest rate that is known to be too much."""


@dataclass(slots=True, eq=False)
class MixCapacity:
    """Capacities of a service's instances. Every rate that was tried is remembered."""

    fleet: MixedService
    raw: bool = False
    """Without headroom: every instance counts with its profiled throughput."""
    _known: dict[Counts, _Bracket] = field(default_factory=dict)

    def served(self, counts: Counts, rate_per_s: float) -> float:
        """Part of the offered rate that these instances serve within the SLO.

        The router sheds what is beyond, the same fraction of every bucket.
        """
        known = self._known.setdefault(counts, _Bracket())
        if rate_per_s <= known.served or self._try(counts, known, rate_per_s):
            return rate_per_s
        return min(rate_per_s, self._narrowed(counts, known))

    def highest(self, counts: Counts) -> float:
        """Highest rate that these instances serve, within the precision."""
        known = self._known.setdefault(counts, _Bracket())
        rate = max(known.served, 1.0)
        while known.missed == float("inf"):
            self._try(counts, known, rate)
            rate *= 2
        return self._narrowed(counts, known)

    def _narrowed(self, counts: Counts, known: _Bracket) -> float:
        while known.missed - known.served > PRECISION * known.missed and known.missed > PRECISION:
            self._try(counts, known, (known.served + known.missed) / 2)
        return known.served

    def _try(self, counts: Counts, known: _Bracket, rate_per_s: float) -> bool:
        if rate_per_s >= known.missed:
            return False
        if rate_per_s <= 0 or self._is_routed(counts, rate_per_s):
            known.served = max(known.served, rate_per_s)
            return True
        known.missed = rate_per_s
        return False

    def _is_routed(self, counts: Counts, rate_per_s: float) -> bool:
        need = self.fleet.need(rate_per_s, raw=self.raw)
        stock = {name: Stock(count) for name, count in zip(self.fleet.types, counts, strict=True)}
        answer = answer_mix(MixQuestion((need,), stock), Budget(ROUTING_WORK), gap=_ANY_MIX)
        return isinstance(answer, MixAnswer)


_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class MixRun:
    """Instances of a policy over the steps of a scenario, shape (steps, types) each."""

    wanted: IntArray
    """Instances that are billed."""
    ready: IntArray
    """Instances that serve."""


@dataclass(frozen=True, slots=True)
class MixAccount:
    """Bill of a run, and what it bought."""

    dollars: float
    requests: float
    """Requests offered in the observed steps."""
    in_slo: float
    """Those of them that were served within the SLO."""
    violation_minutes: float
    """Minutes of the observed steps with more requests than ready capacity."""
    changes_per_day: float
    """Steps in which instances were started or stopped."""
    starts_per_day: float
    """Instances started."""

    @property
    def per_million(self) -> float:
        """Dollars per million requests within the SLO."""
        return 1e6 * self.dollars / self.in_slo if self.in_slo else float("inf")

    @property
    def missed_fraction(self) -> float:
        return 1 - self.in_slo / self.requests if self.requests else 0.0


def account_of(scenario: LoadScenario, run: MixRun, capacity: MixCapacity) -> MixAccount:
    """Account of a run. The scenario's load is in requests per second.

    Requests that were not observed are neither served nor missed, and their steps are billed.
    """
    rates, rows = scenario.demand.tolist(), run.ready.tolist()
    served = [0.0] * len(rates)
    for step in np.argsort(-scenario.demand).tolist():  # what serves the highest rate serves the others, too
        served[step] = capacity.served(tuple(rows[step]), rates[step])
    days = len(run.wanted) * scenario.step_s / DAY_S
    change = np.diff(run.wanted, axis=0)
    return account(
        scenario,
        run.wanted @ np.array(capacity.fleet.prices_per_hour),
        np.array(served),
        changes_per_day=float((change != 0).any(axis=1).sum() / days),
        starts_per_day=float(np.maximum(change, 0).sum() / days),
    )


def account(
    scenario: LoadScenario,
    per_hour: FloatArray,
    served: FloatArray,
    *,
    changes_per_day: float = 0.0,
    starts_per_day: float = 0.0,
) -> MixAccount:
    """Account of what is billed, dollars per hour, and of the rates that are served; shape (steps,) each."""
    step_s, seen, offered = scenario.step_s, scenario.observed, scenario.demand
    return MixAccount(
        dollars=float(per_hour.sum() * step_s / _HOUR_S),
        requests=float(offered[seen].sum() * step_s),
        in_slo=float(np.minimum(served, offered)[seen].sum() * step_s),
        violation_minutes=float((served < offered - 1e-9)[seen].sum() * step_s / 60.0),
        changes_per_day=changes_per_day,
        starts_per_day=starts_per_day,
    )
