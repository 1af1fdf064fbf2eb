"""Sweeps from the text of a command line: contests of placement policies, and what-if scenarios."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path

from cli.inputs.runs import check_report
from cluster.errors import ConfigError, Mistake, tried
from cluster.snapshot import Snapshot
from placement.policies import POLICIES
from simulator.openb.generator import generate, trace_of
from simulator.openb.trace_reader import OPENB_PRICES, OPENB_PRICES_SOURCE, read_trace
from simulator.packing.policy_comparison import check_contest
from simulator.packing.replay import Replay
from simulator.scenarios import Scenario, ScenarioAnswer
from simulator.sweep.runner import PolicyRun, Swept, digest_of, runs_of

MOST_SEEDS = 1000
"""Upper limit of `--seeds`: a typing error such as 1-1000000000 would exhaust memory."""


@dataclass(frozen=True, slots=True)
class ContestOptions:
    """Options of the command line, as text and paths."""

    policies: str
    seeds: str
    nodes: Path | None = None
    pods: tuple[Path, ...] = ()
    generate: str = ""
    """Numbers of nodes of the fleets to generate, such as `300` or `300,600`."""
    mix: str = "default"
    """Pod mixes to generate for each fleet, separated by commas."""
    prices: str = ""
    report: Path | None = None
    results: Path | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """Complete input of a sweep: traces, runs and prices."""

    traces: Mapping[str, Snapshot]
    sources: Mapping[str, str]
    """Origin of each trace, as a sentence, by trace name."""
    digests: Mapping[str, str]
    """Digest of the content of each trace, by trace name."""
    runs: tuple[PolicyRun, ...]
    prices: Mapping[str, float]
    """Dollars per GPU and hour, of the types that occur in the traces."""
    prices_source: str


def contest_from(options: ContestOptions) -> Contest:
    """Contest of these options, read and checked before any replay starts. Raises ConfigError with every error."""
    mistakes: list[Mistake] = []

    policies = tuple(dict.fromkeys(filter(None, (name.strip() for name in options.policies.split(",")))))
    if not policies:
        mistakes.append(Mistake("--policies", "is empty", "name one or several, such as bestfit,fgd"))
    no_seeds: tuple[int, ...] = ()
    no_prices: dict[str, float] = {}
    no_traces: Traces = ({}, {}, {})
    seeds = tried(lambda: seeds_from(options.seeds), no_seeds, mistakes)
    prices = tried(lambda: prices_from(options.prices), no_prices, mistakes)
    tried(lambda: check_report(options.report), None, mistakes)
    if options.results is not None and options.results.exists() and not options.results.is_dir():
        mistakes.append(Mistake(f"--results {options.results}", "is not a folder", "name a folder; it need not exist"))
    traces_of = _generated_traces if options.generate else _traces_from_files
    traces, sources, digests = tried(lambda: traces_of(options, prices), no_traces, mistakes)
    tried(lambda: check_contest(traces, policies), None, mistakes)
    present = {gpu_type.name for trace in traces.values() for gpu_type in trace.gpu_types}
    if options.prices and prices and present.isdisjoint(prices) and not mistakes:
        remedy = f"its types are {', '.join(sorted(present))}"
        mistakes.append(Mistake("--prices", "has no price of a GPU type of the fleet", remedy))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return Contest(
        traces=traces,
        sources=sources,
        digests=digests,
        runs=runs_of(tuple(traces), policies, seeds),
        prices={name: price for name, price in prices.items() if name in present},
        prices_source="given with --prices" if options.prices else OPENB_PRICES_SOURCE,
    )


def seeds_from(text: str) -> tuple[int, ...]:
    """Seeds of `42-44,50`: 42, 43, 44, 50. Raises ConfigError."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first:
            raise ConfigError(Mistake("--seeds", f"{part.strip()!r} is not a seed or a range", "write 42-51 or 1,5,9"))
        if len(seeds) + last - first >= MOST_SEEDS:
            raise ConfigError(Mistake("--seeds", f"has more than {MOST_SEEDS} seeds", "give fewer"))
        seeds.extend(range(first, last + 1))
    return tuple(dict.fromkeys(seeds))


def prices_from(text: str) -> dict[str, float]:
    """Dollars per GPU and hour by type, of `T4=0.35,G2=1.01`; "" gives the illustrative openb prices.

    Raises ConfigError.
    """
    if not text:
        return dict(OPENB_PRICES)
    prices: dict[str, float] = {}
    mistakes = []
    for part in text.split(","):
        name, _, price = (word.strip() for word in part.partition("="))
        try:
            prices[name] = float(price)
        except ValueError:
            prices[name] = math.nan
        if not name or not 0 <= prices[name] < math.inf:
            mistakes.append(
                Mistake("--prices", f"{part.strip()!r} is not a price", "write TYPE=DOLLARS, such as T4=0.35")
            )
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return prices


def sizes_from(text: str) -> tuple[int, ...]:
    """Fleet sizes of `300,600`: 300, 600. Raises ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    if wrong := [part for part in parts if not re.fullmatch(r"-?\d{1,7}", part)]:
        raise ConfigError(Mistake("--generate", f"{wrong[0]!r} is not a number of nodes", "write 300 or 300,600"))
    return tuple(dict.fromkeys(int(part) for part in parts))


Traces = tuple[dict[str, Snapshot], dict[str, str], dict[str, str]]
"""Traces, their sources and digests, by name."""


def _generated_traces(options: ContestOptions, prices: Mapping[str, float]) -> Traces:
    traces, sources, digests = dict[str, Snapshot](), dict[str, str](), dict[str, str]()
    mixes = tuple(dict.fromkeys(mix.strip() for mix in options.mix.split(",")))
    mistakes: list[Mistake] = []
    for size, mix in product(sizes_from(options.generate), mixes):
        name = f"generated-{size}-{mix}"
        try:
            traces[name] = trace_of(generate(size, mix=mix), prices)
        except ConfigError as error:
            mistakes.extend(mistake for mistake in error.mistakes if mistake not in mistakes)
        sources[name] = f"Generated with the statistics of openb, pod mix {mix}."
        digests[name] = digest_of(name, repr(sorted(prices.items())))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return traces, sources, digests


def _traces_from_files(options: ContestOptions, prices: Mapping[str, float]) -> Traces:
    traces, sources, digests = dict[str, Snapshot](), dict[str, str](), dict[str, str]()
    nodes = options.nodes or Path()
    mistakes: list[Mistake] = []
    for pods in options.pods:
        name = pods.stem.removeprefix("openb_pod_list_")
        if name in traces:
            mistakes.append(Mistake(f"--pods {pods}", f"is a second trace named {name}", "give each file its own name"))
            continue
        try:
            traces[name] = read_trace(nodes, pods, prices)
            sources[name] = f"Read from {nodes} and {pods}."
            digests[name] = digest_of(nodes.read_bytes(), pods.read_bytes(), repr(sorted(prices.items())))
        except ConfigError as error:
            mistakes.extend(mistake for mistake in error.mistakes if mistake not in mistakes)
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return traces, sources, digests


@dataclass(frozen=True, slots=True)
class ContestResult:
    """Contest with its finished replays and bounds."""

    contest: Contest
    swept: Swept[PolicyRun, Replay]
    bound_pct: Mapping[str, float]
    """Upper bound of any policy's allocation at 100 % arrived demand, % of the GPUs, by trace; mean over the seeds."""
    started_at: datetime
    wall_s: float


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
    lose: tuple[str, ...] = ()
    report: Path | None = None
    results: Path | None = None


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """Scenarios with their finished answers."""

    scenarios: tuple[Scenario, ...]
    swept: Swept[Scenario, ScenarioAnswer]
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
        *([f"without {scenario.lost[0]}={scenario.lost[1]}"] if scenario.lost else []),
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
