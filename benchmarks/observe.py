"""Time to observe the cluster in a cycle, and memory of the caches, on objects as an API server sends them."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.cases import Row, case
from controller.kube_world.observer import Observer, empty_caches
from tests.builders.observed_objects import DAEMONS, filled, node_object, pod_object, watch_event


def took_ms(work: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    work()
    return (time.perf_counter() - start_s) * 1e3


def resident_bytes() -> int:
    """Resident set of this process. Linux only: /proc."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@case(
    "observe",
    "Time and memory of observing generated objects; 1,000 and 10,000 nodes.",
    quick={"nodes": (20,), "looks": 2},
)
def observe(*, nodes: Sequence[int] = (1000, 10_000), looks: int = 100, changed: int = 10) -> Iterator[Row]:
    """A row for each number of nodes, with ten pods each (six on 10,000), nine in ten of them bound.

    Before each observation a few pods change: some are bound, some deleted, some created, and one node has a heartbeat.
    The memory is the growth of the process from the empty caches to the first snapshot, at rest. changed: pods.
    """
    for count in nodes:
        pods = 10 * count if count < 10_000 else 6 * count
        caches = empty_caches()
        observer = Observer(caches, lambda: 0.0)
        fill = filled(count, pods, caches)
        before_bytes = resident_bytes()
        list_ms = took_ms(fill)
        listed_bytes = resident_bytes()
        first_ms = took_ms(observer.observe)
        seen_bytes = resident_bytes()
        look_ms, look_cpu_ms = [], []
        for look in range(looks):
            # Typical changes of one second.
            rng = np.random.default_rng(look)
            for number, deed in zip(rng.integers(0, pods, changed).tolist(), rng.integers(0, 3, changed), strict=True):
                if deed == 0:
                    lines = [watch_event("DELETED", pod_object(number))]
                    lines.append(watch_event("ADDED", pod_object(number, version=look + 2)))
                else:
                    on = f"gpu-{(number + look) % count:05d}"
                    lines = [watch_event("MODIFIED", pod_object(number, on=on, version=look + 2))]
                for line in lines:
                    caches.pods.take_line(line, 0.0)
            caches.nodes.take_line(watch_event("MODIFIED", node_object(look % count)), 0.0)
            cpu_s = time.process_time()
            look_ms.append(took_ms(observer.observe))
            look_cpu_ms.append((time.process_time() - cpu_s) * 1e3)
        idle_ms = [took_ms(observer.observe) for _ in range(looks)]
        yield {
            "nodes": count,
            "pods": pods,
            "daemon_pods": count * DAEMONS,
            "list_ms": round(list_ms),
            "first_ms": round(first_ms),
            "look_p50_ms": round(float(np.median(look_ms)), 1),
            "look_p99_ms": round(float(np.percentile(look_ms, 99)), 1),
            "look_cpu_p50_ms": round(float(np.median(look_cpu_ms)), 1),
            "idle_p50_ms": round(float(np.median(idle_ms)), 2),
            "caches_mb": round((listed_bytes - before_bytes) / 1e6, 1),
            "with_snapshot_mb": round((seen_bytes - before_bytes) / 1e6, 1),
        }
