"""Figures by which policies are compared in tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray
from simulator.packing.summary import PolicySummary, Spread


@dataclass(frozen=True, slots=True)
class Column:
    """Column of the table of results."""

    heading: str
    short: str
    """Short heading with unit, for narrow tables; points of arrived demand are implied."""
    unit: str
    values: Callable[[PolicySummary], FloatArray]
    digits: int
    better: Callable[[Sequence[float]], float] | None
    """Choice of the best mean; None where neither more nor less is better."""
    silent_at_zero: bool = False
    """Whether to omit the column where it is zero throughout."""
    main: bool = False
    """Whether to show the column even in a table of few columns."""


NO_FIGURE = "–"

COLUMNS = (
    Column(
        "Allocated at 100 % arrived",
        "allocated %",
        "% of GPUs",
        lambda s: s.at(s.allocation_pct, 100),
        2,
        max,
        main=True,
    ),
    Column("Allocated at the end", "at the end %", "% of GPUs", lambda s: s.allocation_pct[:, -1], 2, max),
    Column(
        "Stranded at 90 % arrived", "stranded %", "% of GPUs", lambda s: s.at(s.stranded_pct, 90), 2, min, main=True
    ),
    Column("Price of allocated at 100 %", "allocated $/h", "$/h", lambda s: s.at(s.allocated_per_hour, 100), 0, max),
    Column("Stranded at 90 %", "stranded $/h", "$/h", lambda s: s.at(s.stranded_per_hour, 90), 0, min),
    Column("Decision, mean", "mean ms", "ms", lambda s: s.decision_mean_ms, 3, min),
    Column("Decision, 99th percentile", "p99 ms", "ms", lambda s: s.quantile_ms(0.99), 3, min, main=True),
    Column("Upkeep", "upkeep s", "s", lambda s: s.upkeep_s, 1, min, silent_at_zero=True),
    Column("Pods not placed", "not placed", "", lambda s: s.unplaced_pods, 0, min, main=True),
    Column("Pods moved", "moved", "", lambda s: s.moved.astype(np.float64), 0, None, silent_at_zero=True),
)


def number_in_words(value: float, digits: int) -> str:
    """Number with thousands separators; a dash where there is no figure."""
    return f"{value:,.{digits}f}" if np.isfinite(value) else NO_FIGURE


def columns_for(summaries: Sequence[PolicySummary]) -> tuple[Column, ...]:
    """Columns with content: no dollars without prices, no moves or upkeep where there were none."""

    def has_content(column: Column) -> bool:
        silent = {NO_FIGURE, number_in_words(0, column.digits)} if column.silent_at_zero else {NO_FIGURE}
        return any(number_in_words(Spread.of(column.values(s)).mean, column.digits) not in silent for s in summaries)

    return tuple(column for column in COLUMNS if has_content(column))
