"""Simulated service on several GPU types with finite stock, and the mixes that placement finds for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import Names
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
from placement.seating.stock import Stock

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

    def seen(self, at_s: float, counts: Counts, scaled_at_s: float | None) -> Snapshot:
        """Snapshot with these instances requested."""
        now = replace(self.service, replicas=self.by_type(counts), scaled_at_s=scaled_at_s)
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
