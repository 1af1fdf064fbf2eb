"""Forecasts of many policies that background tasks are to fit, and what those who do take of the machine."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from controller.background.host import BackgroundHost
from controller.loops.autoscaler.forecasting import HISTORIES_PER_TURN, Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured, Sample
from simulator.scaling.traces import MINUTE_S, generated_trace

VARIANTS = 25
"""Generated traces; the series of a fit are these, scaled and shifted by hours."""
NOW_S = 1_790_000_040.0
"""Instant at which all histories end: the same in every run, so that the same fits are made."""


@dataclass(frozen=True, slots=True)
class MeasuredPolicies:
    """Policies with their histories, and the forecasts of them."""

    forecasts: Forecasts
    measured: Measured
    wanted: Mapping[str, LoadSeries]

    def digest(self) -> str:
        """Short name for exactly the present forecasts, bit by bit."""
        self.forecasts.turn(self.wanted)
        found = sha256()
        for name in sorted(self.wanted):
            made = self.measured.of(name).forecast
            found.update(b"none" if made is None else made.leads_s.tobytes() + made.quantiles.tobytes())
        return found.hexdigest()[:12]


def measured_policies(host: BackgroundHost, policies: int, days: int, saved: Iterable[bytes] = ()) -> MeasuredPolicies:
    """Policies whose histories were read, and of which only those in saved results have a fit."""
    traces = [generated_trace(seed, days).values / MINUTE_S for seed in range(min(VARIANTS, policies))]
    measured, wanted = Measured(), dict[str, LoadSeries]()
    forecasts = Forecasts(measured, lambda: NOW_S, host)
    forecasts.restore(saved)
    start_s = NOW_S - len(traces[0]) * MINUTE_S
    for number in range(policies):
        name, load = f"default/s{number}", np.roll(traces[number % len(traces)], 60 * (number // len(traces)))
        scaled = (load * (1 + number % 7)).tolist()
        measured.put_history(name, "load", [Sample(start_s + n * MINUTE_S, each) for n, each in enumerate(scaled)])
        wanted[name] = LoadSeries("load", days * 86_400.0)
        if number % HISTORIES_PER_TURN == 0 or number == policies - 1:  # together they would take gigabytes
            while any(measured.waiting(each, "load") for each in wanted):
                forecasts.turn(wanted)
    return MeasuredPolicies(forecasts, measured, wanted)


def cpu_s(pids: Sequence[int]) -> dict[int, float]:
    """Processor time of processes so far, seconds, with that of their children that have ended."""
    found = dict[int, float]()
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            found[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


def session_of(folder: str) -> list[int]:
    """Pids of a driver and of all processes that it started: the OS sessions of those with its temporary folder.

    Ray's agents overwrite their environment with their names, so the folder alone does not find them.
    """
    mark, by_session, own = f"TMPDIR={folder}".encode(), dict[int, list[int]](), set[int]()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            session = os.getsid(int(path.name))
            by_session.setdefault(session, []).append(int(path.name))
            if folder and mark in (path / "environ").read_bytes():
                own.add(session)
        except OSError:
            continue  # it has ended, or is not ours
    return [pid for session in own for pid in by_session[session]]


def pss_mb(pids: Sequence[int]) -> float:
    """Proportional set size, MB: memory that processes share counts once."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e6
