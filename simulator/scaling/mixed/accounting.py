"""Accounting of a mixed fleet: dollars from order to stop, and requests that ready instances serve within the SLO."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray
from simulator.scaling.mixed.capacity import Capacity
from simulator.scaling.replay import Scenario
from simulator.scaling.traces import DAY_S

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class MixRun:
    """Instances of a policy over the steps of a scenario, shape (steps, types) each."""

    wanted: IntArray
    """Instances that are billed."""
    ready: IntArray
    """Instances that serve."""


@dataclass(frozen=True, slots=True)
class Account:
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


def account_of(scenario: Scenario, run: MixRun, capacity: Capacity) -> Account:
    """Account of a run. The scenario's load is in requests per second.

    Requests that were not observed are neither served nor missed, and their steps are billed.
    """
    rates = scenario.demand.tolist()
    served = [capacity.served(tuple(row), rate) for row, rate in zip(run.ready.tolist(), rates, strict=True)]
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
    scenario: Scenario,
    per_hour: FloatArray,
    served: FloatArray,
    *,
    changes_per_day: float = 0.0,
    starts_per_day: float = 0.0,
) -> Account:
    """Account of what is billed, dollars per hour, and of the rates that are served; shape (steps,) each."""
    step_s, seen, offered = scenario.step_s, scenario.observed, scenario.demand
    return Account(
        dollars=float(per_hour.sum() * step_s / _HOUR_S),
        requests=float(offered[seen].sum() * step_s),
        in_slo=float(np.minimum(served, offered)[seen].sum() * step_s),
        violation_minutes=float((served < offered - 1e-9)[seen].sum() * step_s / 60.0),
        changes_per_day=changes_per_day,
        starts_per_day=starts_per_day,
    )
