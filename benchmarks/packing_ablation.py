"""What each mechanism of bid-price packing buys: allocation without it, on fleets that fill up and churn. Simulated."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.cases import Row, Rows, case, numbers, spread
from benchmarks.packing import NODES, PODS, SMALL, traces_of
from benchmarks.tables import grouped, with_error
from cluster import errors
from tests.rigs.packing_ablation import FILL, SETTINGS, WHOLE, AblationRun, play, thinned


def _summary(rows: Sequence[Row]) -> Rows:
    """Allocation of the whole policy, and below it the difference without each mechanism, paired over seeds."""
    whole = {(row["pods"], row["load"], row["seed"]): row["allocation_pct"] for row in rows if row["without"] == WHOLE}
    for (without,), own in grouped(rows, "without").items():
        line: Row = {"without": without}
        pairs = []
        for (pods, load), mine in grouped(own, "pods", "load").items():
            found = np.array([row["allocation_pct"] for row in mine])
            less = np.array([whole[pods, load, row["seed"]] for row in mine])
            pairs.append(found if without == WHOLE else found - less)
            line[f"{pods}, {f'load {load:g}' if load else 'fill'}"] = with_error(pairs[-1], signed=without != WHOLE)
        yield line | {"mean": with_error(np.mean(pairs, axis=0), signed=without != WHOLE)}


@case(
    "packing-ablation",
    "GPUs allocated without each mechanism of packing, on a quarter of openb (simulated).",
    quick={**SMALL, "without": ("hostable",), "every": 2},
    summary=_summary,
)
def packing_ablation(
    *,
    nodes: Path | None = NODES,
    pods: Sequence[Path] = PODS,
    without: Sequence[str] = tuple(SETTINGS),
    loads: Sequence[float] = (FILL, 1.0),
    every: int = 4,
    seeds: Sequence[int] = numbers("42-45"),
    jobs: int = 1,
) -> Iterator[Row]:
    """A row for each list, load, seed and variant. The policy learns the mix from arrivals.

    loads: offered loads; 0: pods arrive and stay until they request the whole fleet. every: keep every so many nodes.
    """
    if unknown := [name for name in without if name not in SETTINGS]:
        raise errors.ConfigError(tuple(errors.Mistake(f"mechanism {name}", "is unknown") for name in unknown))
    traces = {name: thinned(trace, every) for name, trace in traces_of(nodes, pods).items()}
    variants = tuple(dict.fromkeys((WHOLE, *without)))
    runs = [AblationRun(*parts) for parts in product(traces, loads, seeds, variants)]
    for run, allocation in spread(runs, partial(play, traces=traces), jobs):
        about = {"pods": run.trace, "load": run.load, "seed": run.seed, "without": run.without}
        yield {**about, "nodes": len(traces[run.trace].nodes), "allocation_pct": round(allocation, 4)}
