"""Program in HiGHS, passed as arrays: it may grow by columns, and a new solve starts from the last basis.

PuLP models (`placement/mix/pulp_solver.py`) take most of the time where they are built in Python: a model of 1,900
variables takes 0.3 s with PuLP, 0.015 s this way. PuLP can neither add columns nor pass a start.
"""

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from cluster.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Non-zero coefficients, in any order."""

    row: IntArray
    column: IntArray
    value: FloatArray


@dataclass(frozen=True, slots=True)
class TreeSearch:
    """Limits of the search for whole numbers: counts and not clocks, so that results repeat on every machine."""

    most_nodes: int
    gap: float
    """Relative distance from the proven bound at which it stops."""


class Program:
    """min cost·x subject to row_lower ≤ A x ≤ row_upper and 0 ≤ x ≤ upper. One thread, so that results repeat."""

    def __init__(
        self,
        cost: FloatArray,
        upper: FloatArray,
        row_lower: FloatArray,
        row_upper: FloatArray,
        entries: Entries,
        whole: TreeSearch | None = None,
    ) -> None:
        """whole: the search for whole numbers of all variables; None: any fraction of them."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(cost), len(row_lower)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(len(cost)), upper
        lp.row_lower_, lp.row_upper_ = row_lower, row_upper
        order = np.lexsort((entries.row, entries.column))
        counts = np.bincount(entries.column, minlength=len(cost))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.append(0, np.cumsum(counts)).astype(np.int32)
        lp.a_matrix_.index_ = entries.row[order].astype(np.int32)
        lp.a_matrix_.value_ = entries.value[order].astype(np.float64)
        self._row_lower = row_lower
        options: dict[str, bool | int | float] = {"output_flag": False, "threads": 1, "random_seed": 0}
        if whole is not None:
            lp.integrality_ = [highspy.HighsVarType.kInteger] * len(cost)
            options |= {"mip_rel_gap": whole.gap, "mip_abs_gap": 1e-9, "mip_heuristic_run_feasibility_jump": False}
            options |= {"mip_max_nodes": whole.most_nodes}
        self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call] # highspy has no annotations
        for name, value in options.items():
            self._highs.setOptionValue(name, value)
        self._highs.passModel(lp)

    def add_columns(self, cost: FloatArray, entries: Entries) -> None:
        """Adds variables from 0 up without limit, whose coefficients in the existing rows are `entries`.

        entries.column counts from the first of them. The next solve starts from the last basis, in which they are 0: it
        needs a few iterations where few of them help, which is what generating columns rests on.
        """
        order = np.lexsort((entries.row, entries.column))
        start = np.append(0, np.cumsum(np.bincount(entries.column, minlength=len(cost))))[:-1]
        self._highs.addCols(
            len(cost),
            cost,
            np.zeros(len(cost)),
            np.full(len(cost), np.inf),
            len(entries.value),
            start.astype(np.int32),
            entries.row[order].astype(np.int32),
            entries.value[order].astype(np.float64),
        )

    def change(self, upper: FloatArray, row_upper: FloatArray, entries: Entries) -> None:
        """Changes the upper limits of all variables and rows, and these coefficients; starts from the last basis."""
        for row, column, value in zip(entries.row, entries.column, entries.value, strict=True):
            self._highs.changeCoeff(int(row), int(column), float(value))
        columns, rows = np.arange(len(upper), dtype=np.int32), np.arange(len(row_upper), dtype=np.int32)
        self._highs.changeColsBounds(len(columns), columns, np.zeros(len(columns)), upper)
        self._highs.changeRowsBounds(len(rows), rows, self._row_lower, row_upper)

    def solve(self) -> bool:
        """Whether there is a solution; it is optimal unless the search was limited."""
        self._highs.run()
        status = self._highs.getModelStatus()
        limited = (highspy.HighsModelStatus.kSolutionLimit, highspy.HighsModelStatus.kIterationLimit)
        return status == highspy.HighsModelStatus.kOptimal or (
            status in limited
            and self._highs.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        )

    @property
    def objective(self) -> float:
        return float(self._highs.getInfo().objective_function_value)

    @property
    def values(self) -> FloatArray:
        return np.array(self._highs.getSolution().col_value, dtype=np.float64)

    @property
    def row_duals(self) -> FloatArray:
        """Dollars per unit of each row's limit: positive where a lower limit binds, negative where an upper does."""
        return np.array(self._highs.getSolution().row_dual, dtype=np.float64)
