"""Forecasts of many policies that background tasks are to fit, and the memory of those who do."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from controller.background.host import BackgroundHost
from controller.loops.autoscaler.forecasting import Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured, Sample
from simulator.scaling.traces import MINUTE_S, generated_trace

VARIANTS = 25
"""Generated traces; the series of a fit are these, scaled and shifted by hours."""


def measured_policies(host: BackgroundHost, policies: int, days: int) -> Forecasts:
    """Forecasts with the histories of all policies, none of them fitted yet."""
    traces = [generated_trace(seed, days).values / MINUTE_S for seed in range(min(VARIANTS, policies))]
    measured, wanted = Measured(), dict[str, LoadSeries]()
    forecasts = Forecasts(measured, time.time, host)
    start_s = time.time() - len(traces[0]) * MINUTE_S
    for number in range(policies):
        name, load = f"default/s{number}", np.roll(traces[number % len(traces)], 60 * (number // len(traces)))
        scaled = (load * (1 + number % 7)).tolist()
        measured.put_history(name, "load", [Sample(start_s + n * MINUTE_S, each) for n, each in enumerate(scaled)])
        wanted[name] = LoadSeries("load", days * 86_400.0)
    while any(measured.waiting(name, "load") for name in wanted):
        forecasts.turn(wanted)
    return forecasts


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
