"""Demand over time: a production request rate over days, read from a file or synthetic."""

import csv
import gzip
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster.arrays import FloatArray, column
from cluster.errors import ConfigError, Mistake

DAY_S = 86_400.0
BUCKET_S = 600.0

SHAPES: Mapping[str, tuple[tuple[float, float], ...]] = {
    "plateau": ((1.0, 0.5), (1 / 6, 1.0), (6.0, 0.76)),
    "cold-start": ((0.5, 1.0), (2.0, 0.9)),
}
"""Synthetic courses by name, as (hours, fraction of the highest rate): a level load for hours after a short peak, which
no controller can wait out; and a fleet that starts idle after an outage, all its users at once, under a controller that
has measured nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class RateCurve:
    """Shape of a load over time: 1 at its highest bucket, linear between the middles of the buckets."""

    source: str
    bucket_s: float
    share: FloatArray
    """Rate over the highest rate of the curve, shape (buckets,)."""

    @property
    def for_s(self) -> float:
        return len(self.share) * self.bucket_s

    def middles_s(self) -> FloatArray:
        return np.asarray((np.arange(len(self.share)) + 0.5) * self.bucket_s, dtype=np.float64)

    def expected(self) -> tuple[FloatArray, FloatArray]:
        """(instants, integral of the curve from the start to each of them), for mapping counts to instants."""
        at_s = np.concatenate([[0.0], self.middles_s(), [self.for_s]])
        share = np.concatenate([self.share[:1], self.share, self.share[-1:]])
        fine_s = np.unique(np.concatenate([at_s, np.arange(0.0, self.for_s, 60.0)]))
        fine = np.interp(fine_s, at_s, share)
        steps = np.diff(fine_s) * (fine[1:] + fine[:-1]) / 2
        return fine_s, np.concatenate([[0.0], np.cumsum(steps)])

    def days(self, first: int, count: int) -> "RateCurve":
        """These days alone, with rates still relative to the highest of the whole curve."""
        per_day = round(DAY_S / self.bucket_s)
        kept = self.share[first * per_day : (first + count) * per_day]
        return RateCurve(f"{self.source}, days {first} to {first + count - 1}", self.bucket_s, kept)

    def above(self, share: float) -> "RateCurve":
        """Only the stretches in which the rate is at least this fraction of the highest, each with a bucket on both
        sides.

        They are joined end to end, with linear transitions. Budgets are exceeded in these stretches.
        """
        high = self.share >= share
        kept = high | np.append(high[1:], False) | np.insert(high[:-1], 0, False)
        source = f"{self.source}, where it is at least {100 * share:g} % of its highest"
        return RateCurve(source, self.bucket_s, self.share[kept])

    def hottest_day(self) -> int:
        """The day (from 0) that has the highest rate."""
        return int(self.share.argmax() * self.bucket_s // DAY_S)


def read_rates(path: Path, days: int | None = None) -> RateCurve:
    """Rates from a CSV file, plain or gzipped, with the columns `t_s` and `req_per_s` in equal steps.

    days: number of days to use; all of them when None. Raises ConfigError naming every invalid line.
    """
    try:
        at_s, rates = _rates(str(path), csv.DictReader(text_of(path)))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigError(Mistake(f"rates {path}", words, "name a CSV file with t_s and req_per_s")) from error
    steps = np.diff(at_s)
    if len(rates) < 2 or not np.allclose(steps, steps[0]) or steps[0] <= 0:
        raise ConfigError(Mistake(f"rates {path}", "t_s does not rise in equal steps", "give a rate for every step"))
    return _curve(str(path.name), float(steps[0]), rates, days, f"rates {path}")


def text_of(path: Path) -> io.StringIO:
    """Text of a file, plain or gzipped."""
    content = path.read_bytes()
    return io.StringIO((gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8"))


def _rates(place: str, rows: "csv.DictReader[str]") -> tuple[FloatArray, FloatArray]:
    missing = [name for name in ("t_s", "req_per_s") if name not in (rows.fieldnames or ())]
    if missing:
        raise ConfigError(
            Mistake(f"rates {place}", f"has no column {', '.join(missing)}", "see docs/power-simulation.md")
        )
    at_s, rates, mistakes = [], [], []
    for row in rows:
        try:
            at_s.append(float(row["t_s"]))
            rates.append(float(row["req_per_s"]))
            wrong = not (math.isfinite(at_s[-1]) and 0 <= rates[-1] < math.inf)
        except (TypeError, ValueError):
            wrong = True
        if wrong:
            where = f"rates {place}, line {rows.line_num}"
            mistakes.append(Mistake(where, f"{dict(row)} is not a rate", "remove empty buckets, which are gaps"))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return np.array(at_s), np.array(rates)


def made_up_rates(days: int | None = None) -> RateCurve:
    """Two weeks of synthetic rates: a daily and a weekly rhythm with surges, peak over mean about 3.

    They have the statistics of a large production model (ServeGen m-large: peak / mean 2.98, 99th percentile / mean
    2.08, 1st percentile / mean 0.32), not its course. Always the same.
    """
    chance = np.random.default_rng(14)
    count = round(14 * DAY_S / BUCKET_S)
    hours = np.arange(count) * BUCKET_S / 3600.0
    rhythm = 0.34 * np.sin(2 * np.pi * (hours - 9) / 24) + 0.12 * np.sin(2 * np.pi * (hours - 30) / 168)
    wander = np.convolve(chance.normal(0, 1, count + 71), np.exp(-np.arange(72) / 12.0), mode="valid") * 0.10
    rates = np.exp(rhythm + wander)
    for at_h, height in ((22.3, 1.2), (99.5, 0.5), (226.7, 1.1), (301.0, 0.35)):
        rates *= 1 + height * np.exp(-(((hours - at_h) / 0.7) ** 2))
    return _curve("made up", BUCKET_S, rates, days, "--days")


def shaped_rates(name: str) -> RateCurve:
    """The course of this name in SHAPES."""
    share = [share for hours, share in SHAPES[name] for _ in range(round(hours * 3600.0 / BUCKET_S))]
    return RateCurve(name, BUCKET_S, column(share, np.float64))


def _curve(source: str, bucket_s: float, rates: FloatArray, days: int | None, place: str) -> RateCurve:
    if rates.max() <= 0:
        raise ConfigError(Mistake(place, "has no requests at all", "give rates above 0"))
    whole = RateCurve(source, bucket_s, column(rates / rates.max(), np.float64))
    if days is None:
        return whole
    most = int(whole.for_s // DAY_S)
    if not 1 <= days <= most:
        raise ConfigError(Mistake("--days", f"is {days}", f"the rates last {most} days: give 1 to {most}"))
    kept = rates[: round(days * DAY_S / bucket_s)]
    return RateCurve(source, bucket_s, column(kept / kept.max(), np.float64))
