"""What each mechanism of bid-price packing buys: allocation without it, on fleets that fill up and that churn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input
from benchmarks.trace_sweeps import NODES, finish, output_options, pods_option, with_error
from cluster.arrays import IntArray, Names
from cluster.errors import ConfigError, Mistake
from cluster.snapshot import Snapshot
from placement.engine.device_options import StateMemo
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Policy
from placement.policies.bid_price import BidPrice
from placement.prices.classes import kinds_of
from placement.prices.node_value import NodeValues
from placement.prices.price_book import BidSettings, PriceBook, StateWorth
from simulator.openb.trace_reader import read_trace
from simulator.packing.churn import Churn, churning_stream, mean_allocation_pct
from simulator.packing.replay import Conditions, gpu_milli_of, published_stream, replay
from simulator.sweep.runner import SweepProgress, WorkerProcesses, sweep

WHOLE = BidSettings()
SETTINGS: Mapping[str, BidSettings] = {
    "nothing": WHOLE,
    "value by prices": WHOLE,
    "hostable": replace(WHOLE, hostable_weight=0.0),
    "fragments": replace(WHOLE, fragment_weight=0.0, churning_fragment_weight=0.0),
    "fragments while filling": replace(WHOLE, fragment_weight=0.0),
    "more weight of fragments under churn": replace(WHOLE, churning_fragment_weight=WHOLE.fragment_weight),
    "fragments by GPUs under churn": replace(WHOLE, churning_fragments_by_gpus=WHOLE.fragments_by_gpus),
    "tightness": replace(WHOLE, tightness_weight=0.0),
    "scarcity": replace(WHOLE, scarcity_weight=0.0),
    "scarcity that is free": replace(WHOLE, scarcity_free=0.0),
    "limit of scarcity": replace(WHOLE, scarcity_most=float("inf")),
    "doubt": replace(WHOLE, doubt=0.0),
    "several draws": replace(WHOLE, draws=1),
    "range of loads": replace(WHOLE, least_load=(WHOLE.least_load + WHOLE.most_load) / 2, most_load=1.05),
}
"""By the mechanism that is taken out."""
FILL = 0.0
"""In place of an offered load: pods arrive and stay, until they request the whole fleet."""
WARM_UP, MEASURED = 3.0, 2.0
"""As in `benchmarks.churn`, in mean stays."""

Record = Mapping[str, Any]


class _WithoutPrices(BidPrice):
    """Without V: only what each class alone could get, and fragments."""

    def new_prices(self) -> Callable[[], PriceBook]:
        return partial(_without_value, super().new_prices())


def _without_value(made: Callable[[], PriceBook]) -> PriceBook:
    book = made()
    nothing = np.zeros_like(book.class_worth)
    values = NodeValues(book.shares, nothing, book.kinds)
    worth = StateWorth(values, book.state_worth.expectation, book.state_worth.settings)
    return replace(book, class_worth=nothing, state_worth=worth, memo=StateMemo(worth.of_states))


@dataclass(frozen=True, slots=True)
class Case:
    """One replay."""

    trace: str
    load: float
    seed: int
    without: str


@dataclass(frozen=True, slots=True)
class Setup:
    """What all replays share."""

    nodes: Path
    traces: tuple[tuple[str, Path], ...]
    every: int


def play(case: Case, setup: Setup) -> Record:
    """Replays a case; returns its JSON line. Arrivals and stays depend on trace, load and seed alone."""
    trace = _trace(setup.nodes, dict(setup.traces)[case.trace], setup.every)
    packer = Packer.of(trace, _policy(trace, case), content_rank(trace, case.seed))
    if case.load == FILL:
        played = replay(trace, _until_full(trace, case.seed), packer, lambda: 0.0, case.seed)
        allocation = played.curve.at(100, played.curve.allocation_pct)
    else:
        stream = churning_stream(trace, case.seed, Churn(case.load, "exponential", WARM_UP, MEASURED))
        played = replay(trace, stream.pods, packer, lambda: 0.0, case.seed, Conditions(stay=stream.stay))
        allocation = mean_allocation_pct(played, stream)
    return {
        "pods": case.trace,
        "load": case.load,
        "seed": case.seed,
        "without": case.without,
        "nodes": len(trace.nodes),
        "allocation_pct": round(allocation, 4),
    }


def _policy(trace: Snapshot, case: Case) -> Policy:
    made = _WithoutPrices if case.without == "value by prices" else BidPrice
    return made(kinds_of(trace.nodes, trace.gpu_type_names), settings=SETTINGS[case.without], seed=case.seed)


def _until_full(trace: Snapshot, seed: int) -> IntArray:
    """The published stream, as far as the pod with which the whole fleet is requested."""
    stream = published_stream(trace, seed)
    _, total_milli = gpu_milli_of(trace.pods)
    requested = np.cumsum(total_milli[stream])
    return stream[: int(np.searchsorted(requested, 1000.0 * trace.nodes.gpus.sum())) + 1]


@lru_cache(maxsize=4)
def _trace(nodes: Path, pods: Path, every: int) -> Snapshot:
    """The trace, on every so many of its nodes, of all kinds alike."""
    trace = read_trace(nodes, pods)
    table = trace.nodes
    rows = np.sort(np.lexsort((table.cpu_milli, table.gpus, table.gpu_type))[::every])
    kept = replace(
        table,
        names=Names(table.names[row] for row in rows),
        cpu_milli=table.cpu_milli[rows],
        memory_bytes=table.memory_bytes[rows],
        gpus=table.gpus[rows],
        gpu_type=table.gpu_type[rows],
        schedulable=table.schedulable[rows],
        labels=tuple(table.labels[row] for row in rows),
        taints=tuple(table.taints[row] for row in rows),
    )
    return replace(trace, nodes=kept)


@click.command(context_settings={"show_default": True})
@NODES
@pods_option("Pods to draw from")
@click.option("--loads", callback=arguments.fractions, default="1.0", help="Offered loads of the fleet that churns.")
@click.option("--fill/--no-fill", default=True, help="Also a fleet that fills up, read at 100 % requested.")
@click.option("--without", callback=arguments.words, default=",".join(SETTINGS), help="Mechanisms to take out.")
@click.option("--every", type=click.IntRange(1), default=4, help="Keep every so many nodes of the fleet.")
@click.option("--seeds", callback=arguments.seeds, default="42-45", help="Seeds of arrivals, stays and policy.")
@output_options()
@refusing_bad_input
def main(
    nodes: Path,
    pods: tuple[Path, ...],
    loads: tuple[float, ...],
    without: tuple[str, ...],
    every: int,
    seeds: tuple[int, ...],
    jobs: int,
    json_to: str | None,
    *,
    fill: bool,
) -> None:
    """Replays the policy without one mechanism at a time, beside the whole policy on the same arrivals. Simulated.

    The policy learns the mix from arrivals. Differences are paired over seeds, with their standard error.
    """
    if unknown := [name for name in without if name not in SETTINGS]:
        raise ConfigError(tuple(Mistake(f"--without {name}", "is unknown") for name in unknown))
    variants = tuple(dict.fromkeys(("nothing", *without)))
    setup = Setup(nodes, tuple((path.stem, path) for path in pods), every)
    where = ((FILL,) if fill else ()) + loads
    names = [name for name, _ in setup.traces]
    cases = [Case(name, load, seed, each) for name, load, seed, each in product(names, where, seeds, variants)]
    swept = sweep(cases, partial(play, setup=setup), way=WorkerProcesses(jobs), on_done=_tell)
    finish(swept, json_to, lambda records: [table_of(records)], width=170)


def table_of(records: Sequence[Record]) -> Table:
    """Allocation of the whole policy, and below it the difference without each mechanism, over the same seeds."""
    found = {(r["pods"], r["load"], r["seed"], r["without"]): r["allocation_pct"] for r in records}
    columns = list(dict.fromkeys((name, load) for name, load, _, _ in found))
    table = Table(title="mean GPU allocation %, and the difference without a mechanism (simulated)")
    for heading in ("without", *(f"{name}, {f'load {load}' if load else 'fill'}" for name, load in columns), "mean"):
        table.add_column(heading, justify="left" if heading == "without" else "right")
    for variant in dict.fromkeys(without for *_, without in found):
        cells, pairs_of_all = [], []
        for column in columns:
            seeds = [seed for *at, seed, without in found if (*at, without) == (*column, variant)]
            whole = np.array([found[(*column, seed, "nothing")] for seed in seeds])
            ours = np.array([found[(*column, seed, variant)] for seed in seeds])
            pairs_of_all.append(ours if variant == "nothing" else ours - whole)
            cells.append(with_error(pairs_of_all[-1], signed=variant != "nothing"))
        table.add_row(variant, *cells, with_error(np.mean(pairs_of_all, axis=0), signed=variant != "nothing"))
    return table


def _tell(progress: SweepProgress[Case, Record]) -> None:
    record = progress.result
    where = f"load {record['load']}" if record["load"] else "fill"
    click.echo(
        f"[{progress.done}/{progress.total}] {record['pods']} {where} seed {record['seed']} without "
        f"{record['without']}: {record['allocation_pct']} %",
        err=True,
    )


if __name__ == "__main__":
    main()
