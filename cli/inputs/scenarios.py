"""Scenarios of `tonnage whatif`, from the text of its options, and their results."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path

from cli.inputs.contest import seeds_from
from cli.inputs.report_file import check_report
from cluster.errors import ConfigError, Mistake, tried
from placement.policies import POLICIES
from simulator.scenarios import Answer, Scenario
from simulator.sweep.runner import Swept

Choices = tuple[tuple[str, float], ...]
"""One combination of values: (GPU type, value) for each type with an option."""


@dataclass(frozen=True, slots=True)
class WhatIfOptions:
    """Options of the command line, as text and paths."""

    demand: str
    slo: str
    price: tuple[str, ...]
    nodes: tuple[str, ...]
    policies: str
    seeds: str
    deadline_s: float
    report: Path | None = None
    results: Path | None = None


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """Scenarios with their finished answers."""

    scenarios: tuple[Scenario, ...]
    swept: Swept[Scenario, Answer]
    started_at: datetime
    wall_s: float


def scenarios_from(options: WhatIfOptions) -> tuple[Scenario, ...]:
    """Every combination of the options; first the fleet unchanged. Raises ConfigError with every error."""
    mistakes: list[Mistake] = []

    no_factors: tuple[float, ...] = ()
    demands = tried(lambda: _factors("--demand", options.demand), no_factors, mistakes)
    slos = tried(lambda: _factors("--slo", options.slo), no_factors, mistakes)
    no_choice: tuple[Choices, ...] = ((),)
    prices = tried(lambda: _by_type("--price", options.price, least=0.0), no_choice, mistakes)
    nodes = tried(lambda: _by_type("--nodes", options.nodes, whole=True), no_choice, mistakes)
    no_seeds: tuple[int, ...] = ()
    seeds = tried(lambda: seeds_from(options.seeds), no_seeds, mistakes)
    policies = tuple(dict.fromkeys(name.strip() for name in options.policies.split(",")))
    mistakes += [
        Mistake(f"--policies {name!r}", "there is no such policy", f"choose one of {', '.join(POLICIES)}")
        for name in policies
        if name not in POLICIES
    ]
    tried(lambda: check_report(options.report), None, mistakes)
    if mistakes:
        raise ConfigError(tuple(mistakes))
    scenarios = [
        Scenario(policy, demand, slo, price, tuple((name, int(count)) for name, count in more if count), seed)
        for policy, seed, slo, price, more, demand in product(policies, seeds, slos, prices, nodes, demands)
    ]
    return tuple(dict.fromkeys([Scenario(policies[0], seed=seeds[0]), *scenarios]))


def scenario_label(scenario: Scenario) -> str:
    """Differences from the fleet as it is, in a few words."""
    parts = [
        *([f"demand × {scenario.demand:g}"] if scenario.demand != 1 else []),
        *([f"time per token × {scenario.slo:g}"] if scenario.slo != 1 else []),
        *(f"{name} at ${price:g}" for name, price in scenario.prices),
        *(f"{count:+d} nodes of {name}" for name, count in scenario.nodes),
    ]
    return ", ".join(parts) or "as it is"


def _factors(option: str, text: str) -> tuple[float, ...]:
    return tuple(dict.fromkeys(_number(option, part, above=0.0) for part in text.split(",")))


def _by_type(
    option: str, texts: Sequence[str], *, least: float = -math.inf, whole: bool = False
) -> tuple[Choices, ...]:
    """Combinations of `A100=2,3` and `H100=4`: ((A100, 2), (H100, 4)) and ((A100, 3), (H100, 4))."""
    choices = []
    for text in texts:
        name, is_there, values = text.partition("=")
        if not is_there or not name.strip():
            raise ConfigError(Mistake(f"{option} {text}", "has no GPU type", "write TYPE=VALUE,VALUE"))
        numbers = [_number(f"{option} {name.strip()}", part, least=least, whole=whole) for part in values.split(",")]
        choices.append([(name.strip(), number) for number in dict.fromkeys(numbers)])
    names = [of_type[0][0] for of_type in choices]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(Mistake(f"{option} {twice[0]}", "is given twice", "write all its values in one option"))
    return tuple(product(*choices))


def _number(
    option: str, text: str, *, least: float = -math.inf, above: float = -math.inf, whole: bool = False
) -> float:
    form = r"[+-]?\d{1,6}" if whole else r"\d{1,9}(\.\d*)?|\.\d+"
    if not re.fullmatch(form, text.strip()) or float(text) < least or float(text) <= above:
        more = f"numbers above {above:g}" if above > -math.inf else "numbers"
        helps = "write whole numbers such as +4,-2" if whole else f"write {more} such as 0.5,1,2"
        raise ConfigError(Mistake(option, f"{text.strip()!r} is not a valid number", helps))
    return float(text)
