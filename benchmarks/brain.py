"""Cost of the brain (the planner process on Ray): handover, start, memory, time to a plan; and equality of plans."""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments, observe
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.random_clusters import random_cluster
from cluster.arrays import Names
from cluster.changes import without_pods
from cluster.plans import Certificate, Plan
from cluster.snapshot import PENDING, Snapshot
from controller.brain.frames import plan_frame, plan_from_frame, snapshot_frame, snapshot_from_frame
from controller.brain.inline import InlineBrain
from controller.brain.launcher import ChildBrain
from controller.brain.link import Link
from controller.brain.on_ray.ray_start import RayStart
from controller.brain.remote import RayBrain
from controller.deciders.decisions import Decisions
from controller.kube_world.observer import Observer, empty_caches, settle_heap
from placement.mix.planner import MixSettings

Record = Mapping[str, object]

WITHIN_S = 120.0
"""Timeout of a brain's start on a busy machine, and deadline of compared plans, which must not depend on it,
seconds."""
DECISIONS = Decisions(mix=MixSettings(explain=False))


@click.command(context_settings={"show_default": True})
@click.option("--sizes", callback=arguments.seeds, default="10000", help="Pods to plan; a tenth as many nodes.")
@click.option("--handover", callback=arguments.seeds, default="10000,60000", help="Pods to hand over; likewise.")
@click.option("--compare", type=click.IntRange(0), default=200, help="Random clusters to plan on Ray and inline.")
@click.option("--plans", type=click.IntRange(1), default=20, help="Timed plans for each size, after small changes.")
@click.option("--planners", type=click.IntRange(1), default=2, help="Planners on Ray for the comparison.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    sizes: tuple[int, ...], handover: tuple[int, ...], compare: int, plans: int, planners: int, json_to: str | None
) -> None:
    """Times a brain on its own embedded Ray, as the operator runs it.

    The controller's side is realistic: its caches hold the objects of the snapshots. Exit status 1 when a plan on Ray
    differs from the plan of this process.
    """
    handed: list[Record] = [handover_of(size) for size in handover]
    planned: list[Record] = [costs(size, plans) for size in sizes]
    alike = comparison(compare, planners) if compare else {}
    if json_to:
        write_lines(json_to, [*handed, *planned, *([alike] if alike else [])])
    console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 110)
    console.print(table_of("Handing a snapshot over", handed))
    console.print(table_of("Planning on an embedded Ray", planned))
    if alike:
        console.print(f"{alike['same']} of {alike['clusters']} random clusters: the same plan on Ray and inline")
        sys.exit(alike["same"] != alike["clusters"])


def handover_of(pods: int) -> Record:
    """Times of a handover: encoding a snapshot as a frame, sending and decoding it."""
    snapshot = observer_of(pods).observe()
    frame = snapshot_frame(snapshot)
    make_ms, read_ms = median_ms(lambda: snapshot_frame(snapshot)), median_ms(lambda: snapshot_from_frame(frame))
    send_ms = float(np.median([sent_ms(frame) for _ in range(20)]))
    return {
        "pods": pods,
        "nodes": len(snapshot.nodes),
        "frame_mb": round(len(frame) / 1e6, 1),
        "make_ms": round(make_ms, 1),
        "send_ms": round(send_ms, 1),
        "read_ms": round(read_ms, 1),
        "in_all_ms": round(make_ms + send_ms + read_ms, 1),
    }


def observer_of(pods: int) -> Observer:
    """Observer with `pods` pods as objects in its caches, and a tenth as many nodes."""
    caches = empty_caches()
    observe.fill(observe.lists_of(caches, pods // 10, pods))
    return Observer(caches, lambda: 0.0, at_first_sight=settle_heap)


def costs(pods: int, plans: int) -> Record:
    observer = observer_of(pods)
    snapshot = observer.observe()
    inline = InlineBrain(DECISIONS, time.monotonic)
    began_s = time.monotonic()
    with embedded(DECISIONS, planners=1) as brain:
        first = brain.plan(snapshot, WITHIN_S)
        start_s = time.monotonic() - began_s
        first_by_ray = brain.counts.plans["ray"] == 1
        with_plan = plan_frame(first)
        on_ray, here, framing = [], [], []
        for turn in range(plans):
            seen = changed(snapshot, turn)
            on_ray.append(observe.took_ms(lambda seen=seen: brain.plan(seen, WITHIN_S)))  # type: ignore[misc]
            framing.append(brain.counts.handover_s * 1e3)
            here.append(observe.took_ms(lambda seen=seen: inline.plan(seen, WITHIN_S)))  # type: ignore[misc]
        tree_mb = pss_mb(session_of(brain))
        if not first_by_ray or brain.counts.fallbacks:
            raise SystemExit(f"the brain on Ray did not plan: {brain.counts.fallbacks}, {brain.standing.why}")
    return {
        "pods": pods,
        "pending": len(snapshot.pods.pending),
        "make_frame_ms": round(float(np.median(framing)), 1),
        "read_plan_ms": round(median_ms(lambda: plan_from_frame(with_plan)), 1),
        "idle_cpu_ms": round(idle_cpu_ms(snapshot), 1),
        "inline_p50_ms": round(float(np.median(here))),
        "ray_p50_ms": round(float(np.median(on_ray))),
        "ray_p95_ms": round(float(np.percentile(on_ray, 95))),
        "start_to_plan_s": round(start_s, 1),
        "ray_pss_mb": round(tree_mb),
        "total_pss_mb": round(tree_mb + pss_mb([os.getpid()])),
    }


def idle_cpu_ms(snapshot: Snapshot, cycles: int = 9) -> float:
    """CPU of a plan where no pod waits and one has left since the plan before, milliseconds, median."""
    brain, waits = InlineBrain(DECISIONS, time.monotonic), snapshot.pods.pending.tolist()
    runs = np.setdiff1d(np.arange(len(snapshot.pods)), waits).tolist()
    spent_s = []
    for cycle in range(cycles):
        seen = replace(snapshot, pods=without_pods(snapshot.pods, [*waits, *runs[:cycle]]))
        began_s = time.process_time()
        brain.plan(seen, WITHIN_S)
        spent_s.append(time.process_time() - began_s)
    return 1e3 * float(np.median(spent_s))


def comparison(clusters: int, planners: int) -> dict[str, int]:
    """Number of random clusters with the same plan on Ray and in this process. Half are divided into parts."""
    same = 0
    for half, shares in enumerate((1, 4)):
        decisions = replace(DECISIONS, shares=shares)
        inline = InlineBrain(decisions, time.monotonic)
        with embedded(decisions, planners=planners) as brain:
            for seed in range(half, clusters, 2):
                seen = random_cluster(seed)
                ours, theirs = inline.plan(seen, WITHIN_S), brain.plan(seen, WITHIN_S)
                same += plans_alike(ours, theirs)
            if brain.counts.fallbacks:
                raise SystemExit(f"the brain on Ray did not plan: {brain.counts.fallbacks}")
    return {"clusters": clusters, "same": same}


@contextmanager
def embedded(decisions: Decisions, *, planners: int) -> Iterator[RayBrain]:
    """A running brain on Ray, with its child process."""
    peer = ChildBrain(RayStart(folder="", planners=planners))
    link = Link(peer, decisions, Random(0).random)  # noqa: S311 - spreads restarts, hides nothing
    brain = RayBrain(link, decisions, time.monotonic, lambda: 1)
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


def changed(snapshot: Snapshot, turn: int) -> Snapshot:
    """The snapshot with 2 % of its running pods pending again."""
    rng = np.random.default_rng(turn)
    pods = snapshot.pods
    gone = (rng.random(len(pods)) < 0.02) & (pods.node != PENDING)
    node, devices = np.where(gone, PENDING, pods.node), np.where(gone, 0, pods.devices)
    return replace(snapshot, pods=replace(pods, node=node, devices=devices))


def sent_ms(frame: bytes) -> float:
    """Milliseconds to send a frame to another process and receive its acknowledgement."""
    mine, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _swallow(theirs, len(frame))
    theirs.close()
    with mine:
        took = observe.took_ms(lambda: _heard(mine, frame))
    os.waitpid(pid, 0)
    return took


def _heard(stream: socket.socket, frame: bytes) -> bytes:
    stream.sendall(frame)
    return stream.recv(1)


def _swallow(stream: socket.socket, size: int) -> None:
    """In a forked child: receive `size` bytes, acknowledge, and exit without the parent's exit handlers."""
    got = 0
    while got < size:
        got += len(stream.recv(1 << 20))
    stream.sendall(b"!")
    os._exit(0)


def median_ms(work: Callable[[], object]) -> float:
    return float(np.median([observe.took_ms(work) for _ in range(20)]))


def session_of(brain: RayBrain) -> list[int]:
    """Pids of the brain's child and of all processes that it started; they share its temporary folder."""
    peer = brain.link.peer
    assert isinstance(peer, ChildBrain)  # noqa: S101 - made above
    assert peer.process is not None  # noqa: S101
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


def table_of(title: str, records: list[Record]) -> Table:
    table = Table(title=title)
    table.add_column("")
    for record in records:
        table.add_column(f"{record['pods']:,} pods", justify="right")
    for name in list(records[0])[1:]:
        table.add_row(name, *(f"{record[name]:,}" for record in records))
    return table


def plans_alike(one: Plan, other: Plan) -> bool:
    """Whether two plans are equal."""
    return bool(plain(one) == plain(other))


if __name__ == "__main__":
    main()
