"""Bid-price packing without one of its mechanisms, on fleets that fill up and churn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cluster import arrays, snapshot
from placement.engine.device_options import StateMemo
from placement.engine.packer import Packer, content_rank
from placement.policies.bid_price import BidPrice
from placement.prices.classes import kinds_of
from placement.prices.node_value import NodeValues
from placement.prices.price_book import BidSettings, PriceBook, StateWorth
from simulator.packing.replay import gpu_milli_of, published_stream, replay
from tests.rigs.packing_churn import Churn, churning_stream, mean_allocation_pct

SHIPPED = BidSettings()
WHOLE = "nothing"
"""Taken out of the whole policy, which ships."""
SETTINGS: Mapping[str, BidSettings] = {
    WHOLE: SHIPPED,
    "value by prices": SHIPPED,
    "hostable": replace(SHIPPED, hostable_weight=0.0),
    "fragments": replace(SHIPPED, fragment_weight=0.0, churning_fragment_weight=0.0),
    "fragments while filling": replace(SHIPPED, fragment_weight=0.0),
    "more weight of fragments under churn": replace(SHIPPED, churning_fragment_weight=SHIPPED.fragment_weight),
    "fragments by GPUs under churn": replace(SHIPPED, churning_fragments_by_gpus=SHIPPED.fragments_by_gpus),
    "tightness": replace(SHIPPED, tightness_weight=0.0),
    "scarcity": replace(SHIPPED, scarcity_weight=0.0),
    "scarcity that is free": replace(SHIPPED, scarcity_free=0.0),
    "limit of scarcity": replace(SHIPPED, scarcity_most=float("inf")),
    "doubt": replace(SHIPPED, doubt=0.0),
    "several draws": replace(SHIPPED, draws=1),
    "range of loads": replace(SHIPPED, least_load=(SHIPPED.least_load + SHIPPED.most_load) / 2, most_load=1.05),
}
"""By the mechanism that is taken out."""
FILL = 0.0
"""In place of an offered load: pods arrive and stay, until they request the whole fleet."""


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
class AblationRun:
    """One replay."""

    trace: str
    load: float
    seed: int
    without: str


def allocation_without(run: AblationRun, traces: Mapping[str, snapshot.Snapshot]) -> float:
    """Mean allocation of one replay, percent. Arrivals and stays depend on list, load and seed alone."""
    trace = traces[run.trace]
    made = _WithoutPrices if run.without == "value by prices" else BidPrice
    policy = made(kinds_of(trace.nodes, trace.gpu_type_names), settings=SETTINGS[run.without], seed=run.seed)
    packer = Packer(trace, policy, content_rank(trace, run.seed))
    if run.load == FILL:
        # The published stream, as far as the pod with which the whole fleet is requested.
        stream = published_stream(trace, run.seed)
        requested = np.cumsum(gpu_milli_of(trace.pods)[1][stream])
        until_full = stream[: int(np.searchsorted(requested, 1000.0 * trace.nodes.gpus.sum())) + 1]
        filled = replay(trace, until_full, packer, lambda: 0.0, run.seed)
        return filled.curve.at(100, filled.curve.allocation_pct)
    churned = churning_stream(trace, run.seed, Churn(run.load, "exponential", 3.0, 2.0))
    played = replay(trace, churned.pods, packer, lambda: 0.0, run.seed, churned.stay)
    return mean_allocation_pct(played, churned)


def thinned(trace: snapshot.Snapshot, every: int) -> snapshot.Snapshot:
    """The trace on every so many of its nodes, of all kinds alike."""
    table = trace.nodes
    rows = np.sort(np.lexsort((table.cpu_milli, table.gpus, table.gpu_type))[::every])
    kept = replace(
        table,
        names=arrays.Names(table.names[row] for row in rows),
        cpu_milli=table.cpu_milli[rows],
        memory_bytes=table.memory_bytes[rows],
        gpus=table.gpus[rows],
        gpu_type=table.gpu_type[rows],
        schedulable=table.schedulable[rows],
        labels=tuple(table.labels[row] for row in rows),
        taints=tuple(table.taints[row] for row in rows),
    )
    return replace(trace, nodes=kept)
