"""Histories of offered load: a CSV file, or the answer of a Prometheus server to a range query."""

import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from cluster.arrays import column
from cluster.errors import ConfigError, Mistake
from controller.loops.autoscaler.prometheus import REFUSALS, SourceError, series_in
from simulator.scaling.traces import DAY_S, LoadTrace

MOST_POINTS = 10_000
"""Points of one query; Prometheus refuses more than 11,000."""
_TIMEOUT_S = 60.0
_MOST_BYTES = 64 * 2**20

Fetch = Callable[[str], bytes]
"""Body of the answer to a GET of a URL."""


def from_prometheus(
    url: str, query: str, *, days: float, step_s: float, fetch: Fetch | None = None, now_s: float | None = None
) -> LoadTrace:
    """The last days of a query's only series, at regular steps; NaN where Prometheus has no sample.

    Raises ConfigError for a server that does not answer, a query that it refuses, and any number of series but one.
    """
    get = getter(fetch or http_get)
    end_s = math.floor((time.time() if now_s is None else now_s) / step_s) * step_s
    steps = round(days * DAY_S / step_s)
    start_s = end_s - (steps - 1) * step_s
    values = np.full(steps, np.nan)
    labels: Mapping[str, str] | None = None
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        _refuse(f"--prometheus {url}", "is no address", "http://prometheus:9090")
    first_s = start_s
    while first_s <= end_s:
        last_s = min(first_s + (MOST_POINTS - 1) * step_s, end_s)  # both ends are included
        asked = urllib.parse.urlencode({"query": query, "start": first_s, "end": last_s, "step": step_s})
        first_s += MOST_POINTS * step_s
        try:
            found = series_in(get(f"{url.rstrip('/')}/api/v1/query_range?{asked}"))
        except SourceError as error:
            raise ConfigError(Mistake(f"--prometheus {url}", str(error), "check the query in its own page")) from error
        if len(found) > 1:
            _refuse(f"--query {query}", f"gives {len(found)} series", "add them up: sum(...)")
        for series in found:
            if labels is not None and series.labels != labels:
                _refuse(f"--query {query}", "gives more than one series", "add them up: sum(...)")
            labels = series.labels
            for at_s, value in series.points:
                values[round((at_s - start_s) / step_s)] = value if value >= 0 else math.nan  # no load is negative
    if not np.isfinite(values).any():
        _refuse(f"--query {query}", f"has no samples in the last {days:g} days", "check it in Prometheus' own page")
    return LoadTrace(query, step_s, start_s, column(values, np.float64))


def http_get(url: str) -> bytes:
    """Body of a GET over HTTP or HTTPS. Raises OSError."""
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # _url admits http and https alone
        body: bytes = answer.read(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise OSError(f"answered more than {_MOST_BYTES // 2**20} MiB")
    return body


def getter(fetch: Fetch) -> Fetch:
    """A fetch whose failures are mistakes of the command; the body of a refusal says why in Prometheus' own form."""

    def get(url: str) -> bytes:
        try:
            return fetch(url)
        except urllib.error.HTTPError as error:
            body: bytes = error.read(10_000)
            if error.code in REFUSALS:
                return body
            _refuse(url.partition("?")[0], f"answered {error.code}: {body[:200].decode(errors='replace')}")
        except OSError as error:
            _refuse(url.partition("?")[0], f"cannot be read: {error}", "check --prometheus")

    return get


def _refuse(place: str, problem: str, remedy: str = "") -> NoReturn:
    raise ConfigError(Mistake(place, problem, remedy))
