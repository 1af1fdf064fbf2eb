"""Contest of placement policies, from the text of a command line; all errors are reported at once."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path

from cli.inputs.report_file import check_report
from cluster.errors import ConfigError, Mistake, tried
from cluster.snapshot import Snapshot
from simulator.openb.generator import generate, trace_of
from simulator.openb.trace_reader import OPENB_PRICES, OPENB_PRICES_SOURCE, read_trace
from simulator.packing.policy_comparison import Rules, check_contest
from simulator.packing.replay import Replay
from simulator.sweep.runner import Run, Swept, digest_of, runs_of

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
    rename_nodes: bool = False
    move_share: float = 0.0
    report: Path | None = None
    results: Path | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """Complete input of a sweep: traces, runs, rules and prices."""

    traces: Mapping[str, Snapshot]
    sources: Mapping[str, str]
    """Origin of each trace, as a sentence, by trace name."""
    digests: Mapping[str, str]
    """Digest of the content of each trace, by trace name."""
    runs: tuple[Run, ...]
    rules: Rules
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
    no_traces: tuple[dict[str, Snapshot], dict[str, str], dict[str, str]] = ({}, {}, {})
    seeds = tried(lambda: seeds_from(options.seeds), no_seeds, mistakes)
    prices = tried(lambda: prices_from(options.prices), no_prices, mistakes)
    if not 0 <= options.move_share <= 1:
        mistakes.append(
            Mistake("--move-share", f"{options.move_share} is not a fraction", "write a number from 0 to 1")
        )
    tried(lambda: check_report(options.report), None, mistakes)
    if options.results is not None and options.results.exists() and not options.results.is_dir():
        mistakes.append(Mistake(f"--results {options.results}", "is not a folder", "name a folder; it need not exist"))
    traces, sources, digests = tried(lambda: _traces(options, prices), no_traces, mistakes)
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
        rules=Rules(rename_nodes=options.rename_nodes, move_share=options.move_share),
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


def _traces(
    options: ContestOptions, prices: Mapping[str, float]
) -> tuple[dict[str, Snapshot], dict[str, str], dict[str, str]]:
    """Traces, their sources and their digests, each by trace name."""
    return _generated_traces(options, prices) if options.generate else _traces_from_files(options, prices)


def _generated_traces(
    options: ContestOptions, prices: Mapping[str, float]
) -> tuple[dict[str, Snapshot], dict[str, str], dict[str, str]]:
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


def _traces_from_files(
    options: ContestOptions, prices: Mapping[str, float]
) -> tuple[dict[str, Snapshot], dict[str, str], dict[str, str]]:
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
    swept: Swept[Run, Replay]
    bound_pct: Mapping[str, float]
    """Upper bound of any policy's allocation at 100 % arrived demand, % of the GPUs, by trace; mean over the seeds."""
    started_at: datetime
    wall_s: float
