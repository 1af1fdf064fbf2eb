"""Ablations of the autoscaler: J without each of its mechanisms, on the same load and lead times."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from autoscaler.decision.decide import WEIGHING
from autoscaler.decision.expected_cost import Weighing
from autoscaler.forecast.fits import fit
from benchmarks.forecast_without import taken_out
from cluster.autoscaling import UNLIMITED
from simulator.scaling.replay import Leads, LoadScenario, Outlook, ReplaySettings, replay, score
from simulator.scaling.study import (
    TONNAGE,
    Record,
    ReplayedPolicy,
    TonnageScaling,
    forecasts_of,
    of_the_richest,
    outlook_of,
    record_of,
)

SPREAD = 0.5
"""Deviation of the logarithm of the random lead times on which the mechanisms of lead times are measured."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The autoscaler with one mechanism taken out."""

    weighing: Weighing = WEIGHING
    settings: ReplaySettings = field(default_factory=ReplaySettings)
    forecasts: str = "whole"
    random_leads: bool = False


VARIANTS: Mapping[str, Variant] = {
    "nothing": Variant(),
    "switching cost": Variant(replace(WEIGHING, start_s=0.0, stop_s=0.0)),
    "reactive floor": Variant(replace(WEIGHING, floor=False)),
    "cost of a return": Variant(replace(WEIGHING, returns=False)),
    "stabilization": Variant(settings=ReplaySettings(behavior=UNLIMITED)),
    "season": Variant(forecasts="season"),
    "conformal": Variant(forecasts="conformal"),
    "self-demotion": Variant(forecasts="self-demotion"),
    "boosting": Variant(forecasts="boosting"),
    "nothing, random leads": Variant(random_leads=True),
    "learned lead time": Variant(settings=ReplaySettings(learned_lead=False), random_leads=True),
    "lead time's spread": Variant(replace(WEIGHING, lead_points=1), random_leads=True),
}


def _without(mechanism: str) -> Callable[[LoadScenario], Outlook]:
    def made(scenario: LoadScenario) -> Outlook:
        with taken_out(mechanism):
            return outlook_of(forecasts_of(scenario))

    return made


FORECASTS: Mapping[str, Callable[[LoadScenario], Outlook]] = {
    "whole": lambda scenario: outlook_of(forecasts_of(scenario)),
    "season": _without("season"),
    "conformal": _without("conformal"),
    "self-demotion": lambda scenario: outlook_of(forecasts_of(scenario, asked=of_the_richest)),
    "boosting": lambda scenario: outlook_of(forecasts_of(scenario, fitted=partial(fit, boosted=False))),
}


def ablated(scenario: LoadScenario, all_leads: Sequence[Leads]) -> Iterator[Record]:
    """Records of every variant and lead time."""
    outlooks = {name: make(scenario) for name, make in FORECASTS.items()}
    for leads in all_leads:
        for name, variant in VARIANTS.items():
            drawn = Leads.lognormal(leads.mean_s, SPREAD) if variant.random_leads else leads
            run = replay(
                scenario,
                TonnageScaling(weighing=variant.weighing),
                drawn,
                outlooks[variant.forecasts],
                variant.settings,
            )
            result = ReplayedPolicy(TONNAGE, None, run, score(scenario, run, drawn.mean_s))
            yield record_of(scenario, leads, result) | {
                "without": name.partition(",")[0],
                "leads": "random" if variant.random_leads else "fixed",
            }
