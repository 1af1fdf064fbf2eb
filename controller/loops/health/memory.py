"""Memory that the analysis of jobs may take: what a job writes decides how much it needs, and jobs are many."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

SHARE = 0.5
"""Part of the container's memory: the rest of the operator took 0.3 GB with 20,000 pods on 2,000 nodes."""
WITHOUT_LIMIT_BYTES = 2 << 30
LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Limit of the own container, as the kernel states it inside of one."""


def analysis_bytes(limit: Path = LIMIT) -> int:
    """Memory that the analysis of all jobs may take."""
    try:
        found = limit.read_text().strip()
    except OSError:
        found = "max"
    return int(SHARE * int(found)) if found.isdecimal() else WITHOUT_LIMIT_BYTES


def left_out(held: Mapping[str, int], most_bytes: int) -> tuple[str, ...]:
    """Jobs (`namespace/name`) without which the others fit: again and again the largest of the namespace that holds
    most, so that one namespace's jobs displace no other's that are smaller together.

    held: memory of each.
    """
    of: Counter[str] = Counter()
    jobs: dict[str, list[tuple[int, str]]] = {}
    for job, size in held.items():
        namespace = job.partition("/")[0]
        of[namespace] += size
        jobs.setdefault(namespace, []).append((size, job))
    for each in jobs.values():
        each.sort()
    found, over = list[str](), of.total() - most_bytes
    while over > 0:
        namespace = max(of, key=lambda each: (of[each], each))
        size, job = jobs[namespace].pop()
        found.append(job)
        of[namespace] -= size
        over -= size
    return tuple(found)
