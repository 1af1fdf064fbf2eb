"""A large cluster under the installed operator: cycles, memory and writes in five phases, and time to a taint."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.cases import CONTROL_PLANE, Row, case
from cluster.errors import ControlPlaneError
from tests.builders.many_services import GPUS_PER_NODE, definitions, fleet, services
from tests.controlplane.health_taints import taints_s
from tests.controlplane.installation import operator_of, site_with
from tests.rigs.controlplane.large_cluster import phases

SERVED_SHARE = 0.1
"""Of the fleet's dollars for the services, roughly."""
SETTINGS: Mapping[str, Any] = {"pools": [{"placer": "bind"}]}
"""Settings of the chart that are not its defaults: a mode in which pods may share devices."""


@case(
    "operator-size",
    "Cycles, memory and writes of the installed operator with 20,000 pods on 2,000 nodes.",
    quick={"nodes": 10, "pods": 50, "services_count": 2, "stuck": 5, "churn": 2, "phase_s": 3, "quiet_s": 5.0},
    needs=(CONTROL_PLANE,),
)
def operator_size(
    *,
    nodes: int = 2000,
    pods: int = 20_000,
    services_count: int = 100,
    stuck: int = 1000,
    churn: int = 10,
    phase_s: int = 60,
    quiet_s: float = 60.0,
    within_min: int = 30,
    seeds: Sequence[int] = (42,),
) -> Iterator[Row]:
    """A row for each phase: it fills, rests, pods come and go, and pods come that fit nowhere.

    stuck: pods that fit nowhere, in the last phase. churn: pods that go and come per second. phase_s: length of each
    phase after the fill, which is over after `quiet_s` without one more bound pod. within_min: longest time after the
    start of the fill.
    """
    for seed in seeds:
        with site_with(fleet(nodes), {"settings": SETTINGS}) as site:
            made = [*definitions(), *services(services_count, nodes * GPUS_PER_NODE, seed, SERVED_SHARE)]
            site.kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": made})
            # Quiet cycles are debug lines.
            overrides = {**SETTINGS, "log_level": "debug"}
            with operator_of(site, overrides) as (running, _), asyncio.Runner() as runner:
                over_at_s = time.monotonic() + 60.0 * within_min
                rows = phases(site, running, nodes, pods, stuck, churn, phase_s, quiet_s)
                while (row := runner.run(_next(rows, over_at_s))) is not None:
                    yield row


async def _next(phases: AsyncIterator[Row], over_at_s: float) -> Row | None:
    """The next record; None when there is none. over_at_s: monotonic. Raises ControlPlaneError at that instant."""
    try:
        async with asyncio.timeout(over_at_s - time.monotonic()) as limit:
            return await anext(phases, None)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ControlPlaneError("the time for all phases has passed; within_min allows more") from error


@case(
    "health-taints",
    "Time from evidence of a broken node to its taint; thirty nodes.",
    quick={"verdicts": 3},
    needs=(CONTROL_PLANE,),
)
def health_taints(*, verdicts: int = 30) -> Iterator[Row]:
    """One row. verdicts: a multiple of 3."""
    took_s = taints_s(verdicts)
    row: Row = {"verdicts": len(took_s), "p50_s": round(float(np.quantile(took_s, 0.5)), 2)}
    yield row | {"p95_s": round(float(np.quantile(took_s, 0.95)), 2), "max_s": round(max(took_s), 2)}
