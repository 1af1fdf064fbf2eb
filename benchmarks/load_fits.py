"""Fits of load forecasts on the brain: minutes for all series, and the time of plans meanwhile and without them."""

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from threading import Event, Thread

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.brain import DECISIONS, WITHIN_S, changed, embedded, observer_of, pss_mb, session_of
from cluster.snapshot import Snapshot
from controller.brain.remote import RayBrain
from controller.deciders.load_fits import MOST_SLOTS, ShardFits
from controller.loops.autoscaler.forecasting import Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured, Sample
from simulator.scaling.traces import MINUTE_S, generated_trace

INTERVAL_S = 1.0
"""Pause between plans, the operator's shortest."""
VARIANTS = 25
"""Generated traces; the series are these, scaled and shifted by hours."""

Record = Mapping[str, object]


@click.command(context_settings={"show_default": True})
@click.option("--series", type=click.IntRange(1), default=2000, help="Series to fit, each with 14 days at a minute.")
@click.option("--slots", type=click.IntRange(1, MOST_SLOTS), default=2, help="Background slots that fit.")
@click.option("--pods", type=click.IntRange(100), default=10_000, help="Pods of the cluster; a tenth as many nodes.")
@click.option("--plans", type=click.IntRange(1), default=40, help="Plans without fits, before and after.")
@click.option("--core", is_flag=True, help="Without gradient-boosted quantiles.")
@click.option("--most-minutes", type=click.FloatRange(1), default=30.0, help="When to give up.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(series: int, slots: int, pods: int, plans: int, core: bool, most_minutes: float, json_to: str | None) -> None:
    """Runs a brain on its own embedded Ray, as the operator does: a plan a second, with fits beside it and without.

    The controller's share runs too: it offers histories, and adopts what comes. Exit status 1 when not all are fitted.
    """
    snapshot = observer_of(pods).observe()
    with embedded(replace(DECISIONS, fit_slots=slots), planners=1) as brain:
        brain.plan(snapshot, WITHIN_S)
        before = timed(brain, snapshot, plans, Forecasts(Measured(), time.time), Event())
        forecasts = made(series, slots, boosted=not core)
        done, began_s = Event(), time.monotonic()
        keeper = Thread(target=kept, args=(forecasts, done, began_s + 60 * most_minutes), daemon=True)
        keeper.start()
        beside = timed(brain, snapshot, 10**9, forecasts, done)
        minutes = (time.monotonic() - began_s) / 60
        memory_mb = pss_mb(session_of(brain))
        after = timed(brain, snapshot, plans, Forecasts(Measured(), time.time), Event())
        counts = dict(brain.background.counts.failures)
    fitted = series - forecasts.waiting
    record: Record = {
        "series": series,
        "fitted": fitted,
        "slots": slots,
        "boosted": not core,
        "minutes": round(minutes, 1),
        "plans_beside": len(beside),
        **{f"p50_ms_{name}": round(float(np.median(took))) for name, took in named(before, beside, after).items()},
        **{
            f"p95_ms_{name}": round(float(np.percentile(took, 95)))
            for name, took in named(before, beside, after).items()
        },
        "ray_pss_mb": round(memory_mb),
        "failures": sum(counts.values()),
    }
    if json_to:
        write_lines(json_to, [record])
    table = Table(
        title=f"{series:,} series fitted on {slots} slots, {pods:,} pods planned every second", show_header=False
    )
    for name, figure in record.items():
        table.add_row(name, f"{figure:,}" if isinstance(figure, int) else str(figure))
    Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 110).print(table)
    sys.exit(fitted < series)


def named(before: list[float], beside: list[float], after: list[float]) -> dict[str, list[float]]:
    return {"without": before + after, "beside": beside}


def timed(brain: RayBrain, snapshot: Snapshot, plans: int, forecasts: Forecasts, done: Event) -> list[float]:
    """Milliseconds of each plan, one a second, with what is offered in its snapshot; until `done` or so many plans."""
    took_ms: list[float] = []
    while len(took_ms) < plans and not done.is_set():
        seen = replace(changed(snapshot, len(took_ms)), load_histories=forecasts.offered)
        began_s = time.monotonic()
        plan = brain.plan(seen, 2.0)
        took_ms.append(1e3 * (time.monotonic() - began_s))
        for shard in plan.fits:
            if isinstance(shard, ShardFits):
                forecasts.put_fits(shard.by_scaler())
        if len(took_ms) % 60 == 0:
            print(f"{len(took_ms)} plans, {len(forecasts.offered)} histories offered", file=sys.stderr)  # noqa: T201
        done.wait(max(0.0, INTERVAL_S - (time.monotonic() - began_s)))
    return took_ms


def made(series: int, slots: int, *, boosted: bool) -> Forecasts:
    """Forecasts with the histories of all series, none of them fitted yet."""
    traces = [generated_trace(seed).values / MINUTE_S for seed in range(min(VARIANTS, series))]
    measured, wanted = Measured(), {}
    forecasts = Forecasts(measured, time.time, slots)
    start_s = time.time() - len(traces[0]) * MINUTE_S
    for number in range(series):
        name, load = f"default/s{number}", np.roll(traces[number % len(traces)], 60 * (number // len(traces)))
        samples = [
            Sample(start_s + minute * MINUTE_S, float(each)) for minute, each in enumerate(load * (1 + number % 7))
        ]
        measured.put_history(name, "load", samples)
        wanted[name] = LoadSeries("load", 14 * 86_400.0, boosted=boosted)
    while any(measured.waiting(name, "load") for name in wanted):
        forecasts.turn(wanted)
    return forecasts


def kept(forecasts: Forecasts, done: Event, over_at_s: float) -> None:
    """The autoscaler's part of the operator: takes the fits that come, and offers the next histories."""
    pause = Event()
    while time.monotonic() < over_at_s:
        forecasts.take_fits()
        if not forecasts.waiting:
            break
        pause.wait(INTERVAL_S)
    done.set()


if __name__ == "__main__":
    main()
