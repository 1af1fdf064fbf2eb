"""The brain (the planner process on Ray): handover, start, memory, time to a plan, fits of forecasts, and faults."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Event, Thread

import numpy as np

from benchmarks.cases import RAY, Row, case, say
from benchmarks.observe import took_ms
from cluster.changes import without_pods
from cluster.errors import ControlPlaneError
from cluster.snapshot import PENDING, Snapshot
from controller.brain.frames import plan_frame, plan_from_frame, snapshot_frame, snapshot_from_frame
from controller.brain.inline import InlineBrain
from controller.brain.remote import RayBrain
from controller.deciders.load_fits import ShardFits
from controller.kube_world.observer import Observer, empty_caches
from controller.loops.autoscaler.forecasting import Forecasts
from controller.loops.autoscaler.measured import Measured
from tests.builders.observed_objects import filled
from tests.chaos.recovery import outcomes
from tests.ray.brains import DECISIONS, WITHIN_S, embedded, offered_histories, pss_mb, session_of

INTERVAL_S = 1.0
"""Pause between plans, the operator's shortest."""


@case(
    "brain-handover",
    "Making, sending and reading a snapshot of 10,000 and 60,000 pods for the brain.",
    quick={"pods": (200,)},
)
def brain_handover(*, pods: Sequence[int] = (10_000, 60_000)) -> Iterator[Row]:
    """A row for each size; a tenth as many nodes. The caches hold the objects of the snapshot, as in the operator."""
    for count in pods:
        snapshot = observer_of(count).observe()
        frame = snapshot_frame(snapshot)
        row: Row = {"pods": count, "nodes": len(snapshot.nodes), "frame_mb": round(len(frame) / 1e6, 1)}
        row |= {"make_ms": round(median_ms(lambda seen=snapshot: snapshot_frame(seen)), 1)}  # type: ignore[misc]
        row |= {"send_ms": round(float(np.median([_sent_ms(frame) for _ in range(20)])), 1)}
        yield row | {"read_ms": round(median_ms(lambda sent=frame: snapshot_from_frame(sent)), 1)}  # type: ignore[misc]


def observer_of(pods: int) -> Observer:
    """Observer with `pods` pods as objects in its caches, and a tenth as many nodes."""
    caches = empty_caches()
    filled(max(1, pods // 10), pods, caches)()
    return Observer(caches, lambda: 0.0)


def median_ms(work: Callable[[], object]) -> float:
    return float(np.median([took_ms(work) for _ in range(20)]))


def _sent_ms(frame: bytes) -> float:
    """Milliseconds to send a frame to another process and receive its acknowledgement."""
    mine, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        got = 0
        while got < len(frame):
            got += len(theirs.recv(1 << 20))
        theirs.sendall(b"!")
        os._exit(0)  # without the parent's exit handlers
    theirs.close()

    def exchange() -> None:
        mine.sendall(frame)
        mine.recv(1)

    with mine:
        took = took_ms(exchange)
    os.waitpid(pid, 0)
    return took


@case(
    "brain",
    "Start, memory and time to a plan of a brain on embedded Ray, and inline; 10,000 pods.",
    quick={"pods": (200,), "plans": 2},
    needs=(RAY,),
)
def brain(*, pods: Sequence[int] = (10_000,), plans: int = 20) -> Iterator[Row]:
    """A row for each size; a tenth as many nodes. plans: timed ones, after small changes."""
    for count in pods:
        snapshot = observer_of(count).observe()
        inline = InlineBrain(DECISIONS, time.monotonic)
        began_s = time.monotonic()
        with embedded(DECISIONS, planners=1) as made:
            first = made.plan(snapshot, WITHIN_S)
            start_s = time.monotonic() - began_s
            first_by_ray = made.counts.plans["ray"] == 1
            frame = plan_frame(first)
            on_ray, here, framing = [], [], []
            for turn in range(plans):
                seen = changed(snapshot, turn)
                on_ray.append(took_ms(lambda now=seen: made.plan(now, WITHIN_S)))  # type: ignore[misc]
                framing.append(made.counts.handover_s * 1e3)
                here.append(took_ms(lambda now=seen, by=inline: by.plan(now, WITHIN_S)))  # type: ignore[misc]
            tree_mb = pss_mb(session_of(made))
            if not first_by_ray or made.counts.fallbacks:
                raise ControlPlaneError(f"the brain on Ray did not plan: {made.counts.fallbacks}, {made.standing.why}")
        yield {
            "pods": count,
            "pending": len(snapshot.pods.pending),
            "make_frame_ms": round(float(np.median(framing)), 1),
            "read_plan_ms": round(median_ms(lambda sent=frame: plan_from_frame(sent)), 1),  # type: ignore[misc]
            "idle_cpu_ms": round(_idle_cpu_ms(snapshot), 1),
            "inline_p50_ms": round(float(np.median(here))),
            "ray_p50_ms": round(float(np.median(on_ray))),
            "ray_p95_ms": round(float(np.percentile(on_ray, 95))),
            "start_to_plan_s": round(start_s, 1),
            "ray_pss_mb": round(tree_mb),
            "total_pss_mb": round(tree_mb + pss_mb([os.getpid()])),
        }


def changed(snapshot: Snapshot, turn: int) -> Snapshot:
    """The snapshot with 2 % of its running pods pending again."""
    pods = snapshot.pods
    gone = (np.random.default_rng(turn).random(len(pods)) < 0.02) & (pods.node != PENDING)
    node, devices = np.where(gone, PENDING, pods.node), np.where(gone, 0, pods.devices)
    return replace(snapshot, pods=replace(pods, node=node, devices=devices))


def _idle_cpu_ms(snapshot: Snapshot, cycles: int = 9) -> float:
    """CPU of a plan where no pod waits and one has left since the plan before, milliseconds, median."""
    inline, waits = InlineBrain(DECISIONS, time.monotonic), snapshot.pods.pending.tolist()
    runs = np.setdiff1d(np.arange(len(snapshot.pods)), waits).tolist()
    spent_s = []
    for cycle in range(cycles):
        seen = replace(snapshot, pods=without_pods(snapshot.pods, [*waits, *runs[:cycle]]))
        began_s = time.process_time()
        inline.plan(seen, WITHIN_S)
        spent_s.append(time.process_time() - began_s)
    return 1e3 * float(np.median(spent_s))


@case(
    "brain-fits",
    "Minutes to fit forecasts of 2,000 services on the brain, and plans beside it.",
    quick={"series": 2, "pods": 200, "plans": 1, "days": 2},
    needs=(RAY,),
)
def brain_fits(
    *,
    series: int = 2000,
    slots: int = 2,
    pods: int = 10_000,
    plans: int = 40,
    days: int = 14,
    boosted: bool = True,
    most_minutes: float = 30.0,
) -> Iterator[Row]:
    """One row. A plan a second; the operator's part runs too: it offers histories, and adopts what comes.

    slots: background slots that fit. plans: without fits, before and after. days: of each series, at a minute.
    """
    snapshot = observer_of(pods).observe()
    with embedded(replace(DECISIONS, fit_slots=slots), planners=1) as made:
        made.plan(snapshot, WITHIN_S)
        idle = Forecasts(Measured(), time.time)
        before = _plan_ms(made, snapshot, plans, idle, Event())
        forecasts = offered_histories(series, slots, days, boosted=boosted)
        done, began_s = Event(), time.monotonic()
        keeper = Thread(target=_adopt, args=(forecasts, done, began_s + 60 * most_minutes), daemon=True)
        keeper.start()
        beside = _plan_ms(made, snapshot, 10**9, forecasts, done)
        minutes = (time.monotonic() - began_s) / 60
        memory_mb = pss_mb(session_of(made))
        without = before + _plan_ms(made, snapshot, plans, idle, Event())
        failures = sum(made.background.counts.failures.values())
    fitted = series - forecasts.waiting
    yield {
        "series": series,
        "fitted": fitted,
        "slots": slots,
        "minutes": round(minutes, 1),
        "plans_beside": len(beside),
        **{
            f"p50_ms_{name}": round(float(np.median(took))) for name, took in (("without", without), ("beside", beside))
        },
        **{
            f"p95_ms_{name}": round(float(np.percentile(took, 95)))
            for name, took in (("without", without), ("beside", beside))
        },
        "ray_pss_mb": round(memory_mb),
        "failures": failures,
        "wrong": f"{series - fitted} series are not fitted" if fitted < series else "",
    }


def _plan_ms(made: RayBrain, snapshot: Snapshot, plans: int, forecasts: Forecasts, done: Event) -> list[float]:
    """Milliseconds of each plan, one a second, with what is offered in its snapshot; until `done` or so many plans."""
    took: list[float] = []
    while len(took) < plans and not done.is_set():
        seen = replace(changed(snapshot, len(took)), load_histories=forecasts.offered)
        began_s = time.monotonic()
        plan = made.plan(seen, 2.0)
        took.append(1e3 * (time.monotonic() - began_s))
        for shard in plan.fits:
            if isinstance(shard, ShardFits):
                forecasts.put_fits(shard.by_scaler())
        if len(took) % 60 == 0:
            say(f"{len(took)} plans, {len(forecasts.offered)} histories offered")
        done.wait(max(0.0, INTERVAL_S - (time.monotonic() - began_s)))
    return took


def _adopt(forecasts: Forecasts, done: Event, over_at_s: float) -> None:
    """The autoscaler's part of the operator: takes the fits that come, and offers the next histories."""
    pause = Event()
    while time.monotonic() < over_at_s:
        forecasts.take_fits()
        if not forecasts.waiting:
            break
        pause.wait(INTERVAL_S)
    done.set()


@case(
    "chaos",
    "Recovery of planning when parts of the brain or its Ray cluster are killed or frozen.",
    quick={"faults": ("kill a planner",)},
    needs=(RAY,),
)
def chaos(*, faults: Sequence[str] = ()) -> Iterator[Row]:
    """A row for each fault; `wrong` where a plan took longer than its deadline plus a second, or recovery too long.

    faults: words in their names; empty: all.
    """
    for found in outcomes(faults):
        yield found | {"wrong": "" if found["held"] else f"{found['fault']}: too slow"}
