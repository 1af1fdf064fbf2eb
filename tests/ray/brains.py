"""A running brain on its own embedded Ray, as the operator starts it, and whether two plans are the same."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import numpy as np

from cluster.arrays import Names
from cluster.plans import Certificate, Plan
from controller.brain.launcher import ChildBrain
from controller.brain.link import Link
from controller.brain.on_ray.ray_start import RayStart
from controller.brain.remote import RayBrain
from controller.deciders.decisions import Decisions
from controller.loops.autoscaler.forecasting import Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured, Sample
from placement.mix.planner import MixSettings
from simulator.scaling.traces import MINUTE_S, generated_trace

WITHIN_S = 120.0
"""Timeout of a brain's start on a busy machine, and deadline of compared plans, which must not depend on it,
seconds."""
DECISIONS = Decisions(mix=MixSettings(explain=False))


@contextmanager
def embedded(decisions: Decisions, *, planners: int) -> Iterator[RayBrain]:
    """A running brain on Ray, with its child process."""
    peer = ChildBrain(RayStart(folder="", planners=planners))
    link = Link(peer, decisions, Random(0))  # noqa: S311 - spreads restarts, hides nothing
    brain = RayBrain(link, decisions, time.monotonic)
    brain.lead(leads=True)
    try:
        over_at_s, pause = time.monotonic() + WITHIN_S, Event()
        while brain.standing.state != "up":
            if time.monotonic() > over_at_s:
                raise SystemExit(f"the brain on Ray did not start: {brain.standing.why}")
            pause.wait(0.02)
        yield brain
    finally:
        brain.close()


def plain(value: Any) -> Any:
    """A plan as data that compares by content, without solver times."""
    match value:
        case np.ndarray():
            return value.tolist()
        case Names() | tuple():
            return [plain(each) for each in value]
        case Mapping():
            return {key: plain(each) for key, each in value.items()}
    if is_dataclass(value):
        names = [f.name for f in fields(value) if not (isinstance(value, Certificate) and f.name == "seconds")]
        return {name: plain(getattr(value, name)) for name in names}
    return value


def plans_alike(one: Plan, other: Plan) -> bool:
    """Whether two plans are equal."""
    return bool(plain(one) == plain(other))


VARIANTS = 25
"""Generated traces; the series of a fit are these, scaled and shifted by hours."""


def session_of(made: RayBrain) -> list[int]:
    """Pids of the brain's child and of all processes that it started; they share its temporary folder."""
    peer = made.link.peer
    assert isinstance(peer, ChildBrain)
    mark = f"TMPDIR={peer.folder}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue  # it has ended, or is not ours
    return found


def pss_mb(pids: list[int]) -> float:
    """Proportional set size, MB: memory that processes share counts once."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e6


def offered_histories(series: int, slots: int, days: int, *, boosted: bool) -> Forecasts:
    """Forecasts with the histories of all series, none of them fitted yet."""
    traces = [generated_trace(seed, days).values / MINUTE_S for seed in range(min(VARIANTS, series))]
    measured, wanted = Measured(), {}
    forecasts = Forecasts(measured, time.time, slots)
    start_s = time.time() - len(traces[0]) * MINUTE_S
    for number in range(series):
        name, load = f"default/s{number}", np.roll(traces[number % len(traces)], 60 * (number // len(traces)))
        scaled = (load * (1 + number % 7)).tolist()
        measured.put_history(name, "load", [Sample(start_s + n * MINUTE_S, each) for n, each in enumerate(scaled)])
        wanted[name] = LoadSeries("load", days * 86_400.0, boosted=boosted)
    while any(measured.waiting(name, "load") for name in wanted):
        forecasts.turn(wanted)
    return forecasts
