"""Time to observe the cluster in a cycle, and memory of the caches."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import api_objects, arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from controller.api import gpu_type
from controller.kube.cache import Cache
from controller.kube_world.observer import Caches, Observer, empty_caches, settle_heap

Record = Mapping[str, object]

DAEMONS = 5
"""DaemonSets of a made-up cluster: network, monitoring, logs, the device plugin and its node features."""


@click.command(context_settings={"show_default": True})
@click.option("--nodes", type=click.IntRange(1), default=1000, help="Nodes with 8 GPUs each.")
@click.option("--pods", callback=arguments.seeds, default="10000", help="Numbers of pods, nine in ten of them bound.")
@click.option("--changed", type=click.IntRange(0), default=10, help="Pods that change between two snapshots.")
@click.option("--looks", type=click.IntRange(1), default=50, help="Timed snapshots.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(nodes: int, pods: tuple[int, ...], changed: int, looks: int, json_to: str | None) -> None:
    """Feeds lists and watch events of generated objects to the caches, as bytes, and times the snapshots.

    Before each snapshot a few pods change: some are bound, some deleted, some created, and one node has a heartbeat.
    The memory is the growth of the process from the empty caches to the first snapshot, at rest.
    """
    records = [timed(nodes, count, changed, looks) for count in pods]
    if json_to:
        write_lines(json_to, records)
    Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 110).print(table_of(records))


def timed(nodes: int, pods: int, changed: int, looks: int) -> Record:
    caches, now_s = empty_caches(), 0.0
    observer = Observer(caches, lambda: now_s, at_first_sight=settle_heap)
    lists = lists_of(caches, nodes, pods)
    before_bytes = resident_bytes()
    list_ms = took_ms(lambda: fill(lists))
    listed_bytes = resident_bytes()
    first_ms = took_ms(observer.observe)
    seen_bytes = resident_bytes()
    look_ms, look_cpu_ms = [], []
    for look in range(looks):
        disturb(caches, nodes, pods, changed, look)
        cpu_s = time.process_time()
        look_ms.append(took_ms(observer.observe))
        look_cpu_ms.append((time.process_time() - cpu_s) * 1e3)
    idle_ms = [took_ms(observer.observe) for _ in range(looks)]
    return {
        "nodes": nodes,
        "pods": pods,
        "daemon_pods": nodes * DAEMONS,
        "changed": changed,
        "list_ms": round(list_ms),
        "first_ms": round(first_ms),
        "look_p50_ms": round(float(np.median(look_ms)), 1),
        "look_p99_ms": round(float(np.percentile(look_ms, 99)), 1),
        "look_cpu_p50_ms": round(float(np.median(look_cpu_ms)), 1),
        "idle_p50_ms": round(float(np.median(idle_ms)), 2),
        "caches_mb": round((listed_bytes - before_bytes) / 1e6, 1),
        "with_picture_mb": round((seen_bytes - before_bytes) / 1e6, 1),
    }


def took_ms(work: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    work()
    return (time.perf_counter() - start_s) * 1e3


Lists = list[tuple[Cache[Any], list[bytes]]]


def lists_of(caches: Caches, nodes: int, pods: int, daemons: int = DAEMONS) -> Lists:
    """Pages of the first list of each resource, as a server sends them.

    daemons: number of DaemonSets, each with a pod on every node, beside the `pods`.
    """
    types = [api_objects.gpu_type(name) for name in api_objects.GPU_TYPES]
    fleet = (api_objects.node(n) for n in range(nodes))
    every_pod = [
        *(api_objects.pod(n, on=seat(n, nodes)) for n in range(pods)),
        *(api_objects.daemon_pod(n, which) for n in range(nodes) for which in range(daemons)),
    ]
    own = [(cache, [api_objects.page(types if kind is gpu_type.KIND else ())]) for kind, cache in caches.own.items()]
    return [*own, (caches.nodes, [api_objects.page(fleet)]), (caches.pods, api_objects.pages(every_pod, 2000))]


def fill(lists: Lists) -> None:
    for cache, bodies in lists:
        for n, body in enumerate(bodies):
            cache.take_page(body, 0.0, is_first=n == 0)


def seat(number: int, nodes: int) -> str:
    return "" if number % 10 == 9 else f"gpu-{number % nodes:05d}"


def disturb(caches: Caches, nodes: int, pods: int, changed: int, look: int) -> None:
    """Typical changes of one second."""
    rng = np.random.default_rng(look)
    for number, deed in zip(rng.integers(0, pods, changed).tolist(), rng.integers(0, 3, changed), strict=True):
        if deed == 0:
            lines = [api_objects.event("DELETED", api_objects.pod(number))]
            lines.append(api_objects.event("ADDED", api_objects.pod(number, version=look + 2)))
        else:
            on = f"gpu-{(number + look) % nodes:05d}"
            lines = [api_objects.event("MODIFIED", api_objects.pod(number, on=on, version=look + 2))]
        for line in lines:
            caches.pods.take_line(line, 0.0)
    caches.nodes.take_line(api_objects.event("MODIFIED", api_objects.node(look % nodes)), 0.0)


def resident_bytes() -> int:
    """Resident set of this process. Linux only: /proc."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def table_of(records: list[Record]) -> Table:
    table = Table(title="Observing the cluster")
    for name in records[0]:
        table.add_column(name, justify="right")
    for record in records:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in record.values()))
    return table


if __name__ == "__main__":
    main()
