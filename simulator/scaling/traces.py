"""Load traces: offered load on a regular grid, read from CSV files or generated."""

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import numpy as np

from cluster.arrays import FloatArray, IntArray, column
from cluster.errors import ConfigError, Mistake

MINUTE_S, DAY_S = 60.0, 86_400.0
GENERATED = "generated"
"""Name of the trace that needs no file."""
_MAX_POINTS = 2_000_000
"""Longest grid that is made of a file, about four years at a minute: one wrong instant must not fill the memory."""
_CLUSTERING = 0.08
_SECONDS = {"t_s": 1.0, "seconds": 1.0, "at_s": 1.0, "minute": MINUTE_S}
_DATES = ("timestamp", "date", "time")


@dataclass(frozen=True, slots=True, eq=False)
class LoadTrace:
    """Offered load of one service on a regular grid."""

    name: str
    step_s: float
    start_s: float
    """Instant of the first point, seconds since the epoch (UTC); 0 where the file has no date."""
    values: FloatArray
    """Shape (points,), load per step in the file's unit (requests, or tokens); NaN where the file has no value.
    Read-only."""

    @property
    def at_s(self) -> FloatArray:
        """Instant of each point, shape (points,)."""
        return np.asarray(self.start_s + self.step_s * np.arange(len(self.values)), dtype=np.float64)

    @property
    def points_per_day(self) -> int:
        return round(DAY_S / self.step_s)

    def days(self, first: int, count: int) -> "LoadTrace":
        """These days of the trace, counted from 0; fewer where it ends."""
        start, end = first * self.points_per_day, (first + count) * self.points_per_day
        return LoadTrace(self.name, self.step_s, self.start_s + start * self.step_s, self.values[start:end])


def read_trace(path: Path, value_column: str | None = None) -> LoadTrace:
    """One column of a CSV file (also `.csv.gz`) as a trace.

    The first column is time: `t_s` in seconds, `minute` in minutes, `timestamp` or `date` as ISO 8601 (UTC unless it
    has an offset). `value_column` defaults to the second column. Rows may lack, repeat (the last counts) or be out of
    order; a blank value is a gap.
    Raises ConfigError with every mistake of the file.
    """
    header, rows = _rows(path)
    name = value_column or header[1]
    if name not in header:
        _refuse(f"{path.name}, line 1, column {name}", "is missing", f"the file has {', '.join(header[1:])}")
    at_s, values = _parsed(path.name, header[0], header.index(name), rows)
    # Commonest distance between neighbouring instants.
    gaps = np.diff(np.unique(at_s))
    if not len(gaps):
        _refuse(path.name, "has one instant only", "two are the least")
    found, counts = np.unique(gaps.round(3), return_counts=True)
    step_s = float(found[counts.argmax()])
    slots: IntArray = np.rint((at_s - at_s.min()) / step_s).astype(np.int64)
    if slots.max() >= _MAX_POINTS:
        _refuse(path.name, f"spans {slots.max():,} steps of {step_s:g} s", f"at most {_MAX_POINTS:,} are read")
    grid = np.full(int(slots.max()) + 1, np.nan)
    grid[slots] = values
    label = path.name.removesuffix(".gz").removesuffix(".csv") + (f":{name}" if value_column else "")
    return LoadTrace(label, step_s, float(at_s.min()), column(grid, np.float64))


def value_columns(path: Path) -> tuple[str, ...]:
    """Columns of a file that can be read as traces, in order."""
    return tuple(_rows(path)[0][1:])


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = csv.reader(raw.decode("utf-8-sig").splitlines())
        header = [name.strip() for name in next(lines, [])]
        rows = [(lines.line_num, row) for row in lines if row]
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(Mistake(str(path), f"cannot be read: {why}")) from error
    if len(header) < 2 or len(rows) < 2:
        _refuse(path.name, "has no two columns and two rows", "time in the first column, load in the second")
    return header, rows


def _parsed(
    name: str, clock: str, value_at: int, rows: Sequence[tuple[int, list[str]]]
) -> tuple[FloatArray, FloatArray]:
    """Instants and values of the rows in the file's order; NaN for a blank value."""
    if clock not in _SECONDS and clock not in _DATES:
        known = ", ".join((*_SECONDS, *_DATES))
        _refuse(
            f"{name}, line 1, column {clock}", "is no time column that is known", f"the first one is one of {known}"
        )
    mistakes: list[Mistake] = []
    at_s, values = np.empty(len(rows)), np.empty(len(rows))
    for row, (line, cells) in enumerate(rows):
        at_s[row] = _instant(clock, cells[0]) if cells else np.nan
        values[row] = _value(cells[value_at] if value_at < len(cells) else "")
        if not np.isfinite(at_s[row]):
            mistakes.append(Mistake(f"{name}, line {line}, column {clock}", f"{cells[0]!r} is not an instant"))
        if values[row] < 0 or np.isinf(values[row]):
            mistakes.append(Mistake(f"{name}, line {line}", f"{cells[value_at]!r} is not a number from 0 up"))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return at_s, values


def _instant(clock: str, text: str) -> float:
    try:
        if clock in _SECONDS:
            return float(text) * _SECONDS[clock]
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        return float("nan")


def _value(text: str) -> float:
    """NaN for a blank cell; -1, which is refused, for what is no number."""
    if not text.strip() or text.strip().lower() == "nan":
        return float("nan")
    try:
        return float(text)
    except ValueError:
        return -1.0


def _refuse(place: str, problem: str, remedy: str) -> NoReturn:
    raise ConfigError(Mistake(place, problem, remedy))


def generated_trace(seed: int, days: int = 14, step_s: float = MINUTE_S, mean_per_s: float = 20.0) -> LoadTrace:
    """Synthetic service: daily and weekly rhythm, slow drift, bursts, Poisson arrivals; no gaps.

    The rhythm has its peak in the working day and half of it at night, weekends 30 % lower. The drift is a random walk
    of the logarithm that is pulled back over six hours (deviation 0.12). Three bursts a day, of 5 to 30 minutes and a
    factor of 1.3 to 2.5, come at random. Minutes vary by 8 % beyond Poisson's, because arrivals cluster. Chosen to
    resemble the public traces; it is no measurement.
    """
    chance = np.random.default_rng(seed)
    points = round(days * DAY_S / step_s)
    at_s: FloatArray = np.arange(points, dtype=np.float64) * step_s
    hour = at_s / 3600.0 % 24.0
    day = np.sin((hour - 9.0) * np.pi / 12.0) + 0.35 * np.sin((hour - 7.0) * np.pi / 6.0)
    weekend = np.where(at_s // DAY_S % 7 >= 5, 0.7, 1.0)
    # Ornstein-Uhlenbeck process, by an exact recursion.
    kept = np.exp(-step_s / (6 * 3600.0))
    shocks = chance.normal(0.0, 0.12 * np.sqrt(1 - kept**2), points)
    factor = np.ones(len(at_s))
    for _ in range(chance.poisson(3 * days)):
        start_s, for_s = chance.uniform(0.0, days * DAY_S), chance.uniform(300.0, 1800.0)
        inside = (at_s >= start_s) & (at_s < start_s + for_s)
        factor[inside] = np.maximum(factor[inside], chance.uniform(1.3, 2.5))
    rate = (
        mean_per_s
        * np.asarray((1.0 + 0.45 * day / 1.2) * weekend)
        * np.exp(np.fromiter(_filtered(shocks, kept), dtype=np.float64, count=points))
        * factor
    )
    clustering = chance.gamma(1 / _CLUSTERING**2, _CLUSTERING**2, points)
    counts = chance.poisson(rate * clustering * step_s).astype(np.float64)
    return LoadTrace(f"{GENERATED}-{seed}", step_s, 0.0, column(counts, np.float64))


def _filtered(shocks: FloatArray, kept: float) -> Iterator[float]:
    state = 0.0
    for shock in shocks.tolist():
        state = kept * state + shock
        yield state
