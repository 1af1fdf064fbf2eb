"""From the words of a command line to a contest of policies, with every mistake named at once."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path

from cluster.errors import ConfigError, Mistake, tried
from cluster.snapshot import Snapshot
from simulator.openb.generator import generate, trace_of
from simulator.openb.prices import OPENB_PRICES, OPENB_PRICES_SOURCE
from simulator.openb.trace_reader import read_trace
from simulator.packing.policy_comparison import Rules, check_contest
from simulator.packing.replay import Replay
from simulator.sweep.result_cache import digest_of
from simulator.sweep.runner import Run, Swept, runs_of

MOST_SEEDS = 1000
"""Nobody means more; a slip such as 1-1000000000 would fill the memory."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for, in its own words."""

    policies: str
    seeds: str
    nodes: Path | None = None
    pods: tuple[Path, ...] = ()
    generate: str = ""
    """Sizes of fleets to make up, such as `300` or `300,600`."""
    mix: str = "default"
    """Pods to make up for each of them, one or several mixes."""
    prices: str = ""
    rename_nodes: bool = False
    move_share: float = 0.0
    report: Path | None = None
    results: Path | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """Everything that a sweep needs."""

    traces: Mapping[str, Snapshot]
    sources: Mapping[str, str]
    """In a sentence, where each trace comes from."""
    digests: Mapping[str, str]
    """A short name for the content of each trace."""
    runs: tuple[Run, ...]
    rules: Rules
    prices: Mapping[str, float]
    """Dollars per GPU and hour of the types that occur."""
    prices_source: str


def contest_from(asked: Asked) -> Contest:
    """Reads and checks everything before any replay begins. Raises ConfigError with every mistake there is."""
    mistakes: list[Mistake] = []

    policies = tuple(dict.fromkeys(filter(None, (name.strip() for name in asked.policies.split(",")))))
    if not policies:
        mistakes.append(Mistake("--policies", "none is named", "name one or several, e.g. bestfit,fgd"))
    no_seeds: tuple[int, ...] = ()
    no_prices: dict[str, float] = {}
    no_traces: tuple[dict[str, Snapshot], dict[str, str], dict[str, str]] = ({}, {}, {})
    seeds = tried(lambda: seeds_from(asked.seeds), no_seeds, mistakes)
    prices = tried(lambda: prices_from(asked.prices), no_prices, mistakes)
    if not 0 <= asked.move_share <= 1:
        mistakes.append(Mistake("--move-share", f"{asked.move_share} is no share", "write a number from 0 to 1"))
    if asked.report is not None and (found := obstacle(asked.report)):
        mistakes.append(Mistake(f"--report {asked.report}", found, "name a file in a folder you may write to"))
    if asked.results is not None and asked.results.exists() and not asked.results.is_dir():
        mistakes.append(Mistake(f"--results {asked.results}", "is no folder", "name a folder; it need not exist"))
    traces, sources, digests = tried(lambda: _traces(asked, prices), no_traces, mistakes)
    tried(lambda: check_contest(traces, policies), None, mistakes)
    if mistakes:
        raise ConfigError(tuple(mistakes))
    present = {gpu_type.name for trace in traces.values() for gpu_type in trace.gpu_types}
    return Contest(
        traces=traces,
        sources=sources,
        digests=digests,
        runs=runs_of(tuple(traces), policies, seeds),
        rules=Rules(rename_nodes=asked.rename_nodes, move_share=asked.move_share),
        prices={name: price for name, price in prices.items() if name in present},
        prices_source="given with --prices" if asked.prices else OPENB_PRICES_SOURCE,
    )


def seeds_from(text: str) -> tuple[int, ...]:
    """`42-44,50` → 42, 43, 44, 50. Raises ConfigError."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first:
            raise ConfigError(Mistake("--seeds", f"{part.strip()!r} is no seed or range", "write 42-51 or 1,5,9"))
        if len(seeds) + last - first >= MOST_SEEDS:
            raise ConfigError(Mistake("--seeds", f"are more than {MOST_SEEDS}", "ask for fewer"))
        seeds.extend(range(first, last + 1))
    return tuple(dict.fromkeys(seeds))


def prices_from(text: str) -> dict[str, float]:
    """`T4=0.35,G2=1.01` → dollars by type; without any text the illustrative prices. Raises ConfigError."""
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
            mistakes.append(Mistake("--prices", f"{part.strip()!r} is no price", "write TYPE=DOLLARS, e.g. T4=0.35"))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return prices


def sizes_from(text: str) -> tuple[int, ...]:
    """`300,600` → 300, 600. Raises ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    if wrong := [part for part in parts if not re.fullmatch(r"-?\d{1,7}", part)]:
        raise ConfigError(Mistake("--generate", f"{wrong[0]!r} is no number of nodes", "write 300 or 300,600"))
    return tuple(dict.fromkeys(int(part) for part in parts))


def _traces(asked: Asked, prices: Mapping[str, float]) -> tuple[dict[str, Snapshot], dict[str, str], dict[str, str]]:
    """Traces, their sources and the digests of their contents, by name."""
    return _made_up(asked, prices) if asked.generate else _read(asked, prices)


def _made_up(asked: Asked, prices: Mapping[str, float]) -> tuple[dict[str, Snapshot], dict[str, str], dict[str, str]]:
    traces, sources, digests = dict[str, Snapshot](), dict[str, str](), dict[str, str]()
    mixes = tuple(dict.fromkeys(mix.strip() for mix in asked.mix.split(",")))
    mistakes: list[Mistake] = []
    for size, mix in product(sizes_from(asked.generate), mixes):
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


def _read(asked: Asked, prices: Mapping[str, float]) -> tuple[dict[str, Snapshot], dict[str, str], dict[str, str]]:
    traces, sources, digests = dict[str, Snapshot](), dict[str, str](), dict[str, str]()
    nodes = asked.nodes or Path()
    mistakes: list[Mistake] = []
    for pods in asked.pods:
        name = pods.stem.removeprefix("openb_pod_list_")
        if name in traces:
            mistakes.append(
                Mistake(f"--pods {pods}", f"a trace {name} is there already", "give each file a name of its own")
            )
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


def obstacle(report: Path) -> str:
    """What will keep a report from being written, "" for nothing: better known before the replays than after them."""
    if report.is_dir():
        return "is a folder"
    folder = next(parent for parent in report.absolute().parents if parent.exists())
    if not folder.is_dir():
        return f"{folder} is no folder"
    return "" if os.access(folder, os.W_OK) else f"{folder} may not be written to"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was asked for and what came of it."""

    contest: Contest
    swept: Swept[Run, Replay]
    bound_pct: Mapping[str, float]
    """The most that any policy could have allocated at 100 % arrived, by trace, mean over the seeds."""
    started_at: datetime
    wall_s: float
