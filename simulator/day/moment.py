"""Moment of a simulated day: the state after one cycle, as figures."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import requires_spot

HOUR_S = 3600.0
STARTING = "Starting"
"""Code of pods that wait although the plan gives no reason: they arrived or were scaled within the cycle."""


@dataclass(frozen=True, slots=True)
class Moment:
    """State after one cycle, for the live output and for the report."""

    at_s: float
    """Simulated seconds since midnight."""
    gpus: int
    """GPUs on nodes that are up or cordoned, without those of a lost node."""
    gpus_used: float
    running: int
    waiting: int
    waits: Mapping[str, int]
    """Pods that wait, by the code of the reason."""
    why: Mapping[str, str]
    """One reason of each code, in words."""
    services_per_hour: float
    """Price per hour of the services' running instances, in dollars: on spot nodes at the spot price."""
    jobs_gpus: float
    """GPUs that pods of no service hold."""
    whole: tuple[str, ...]
    """Services that have a mix, all of whose instances run."""
    demand_share: float
    """Demand as a fraction of the peak."""
    bound: int
    """Pods bound in this cycle."""
    evicted: int
    scaled: int
    failed: int
    """Failed actions."""
    plan_s: float
    """Real seconds from the snapshot to the plan before the guard."""
    gap: float
    """Widest optimality gap of a service's mix: fraction of its price that is not proven to be needed."""
    out_of_time: int
    """Number of parts of the plan that time cut off."""
    lost: str
    """Node that is down after a failure; empty: none."""
    news: tuple[str, ...]
    """Events of the cycle, in words."""


def clock_words(at_s: float) -> str:
    """Seconds since midnight as `13:05`."""
    minutes = round(at_s / 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def services_per_hour(seen: Snapshot) -> float:
    """Price per hour of the services' running instances, in dollars."""
    rows = (row for row, owner in enumerate(seen.pods.owner) if owner and seen.pods.node[row] != PENDING)
    running = ((seen.pods.shapes[seen.pods.shape[row]], seen.nodes.gpu_type[seen.pods.node[row]]) for row in rows)
    return float(
        sum(
            shape.total_gpu_milli / 1000 * seen.gpu_types[gpu_type].price(spot=requires_spot(shape.node_terms))
            for shape, gpu_type in running
            if gpu_type >= 0
        )
    )


def jobs_gpus(seen: Snapshot) -> float:
    """GPUs that pods of no service hold."""
    pods = seen.pods
    rows = (row for row, owner in enumerate(pods.owner) if not owner and pods.node[row] != PENDING)
    return float(sum(pods.shapes[pods.shape[row]].total_gpu_milli for row in rows) / 1000)


def whole_services(seen: Snapshot, plan: Plan) -> tuple[str, ...]:
    """Services that have a mix, all of whose instances run."""
    short = {owner for row, owner in enumerate(seen.pods.owner) if owner and seen.pods.node[row] == PENDING}
    return tuple(each.service for each in plan.services if each.refusal is None and each.service not in short)


def waits(seen: Snapshot, plan: Plan) -> Mapping[str, int]:
    """Pods that wait, by the code of the plan's reason for them or for their gang."""
    reasons = {each.workload: each.reason.code for each in plan.unplaced}
    return dict(Counter(_reasons_of_pods(seen, reasons)))


def _reasons_of_pods(seen: Snapshot, reasons: Mapping[str, str]) -> Iterator[str]:
    for row, name in enumerate(seen.pods.names):
        if seen.pods.node[row] == PENDING:
            gang = int(seen.pods.gang[row])
            of_gang = reasons.get(f"Gang/{seen.gangs[gang].name}") if gang >= 0 else None
            yield of_gang or reasons.get(f"Pod/{name}", STARTING)
