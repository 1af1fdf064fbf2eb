"""What an installed operator decides of objects in its first cycles, and allocates while pods come and go."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import numpy as np

from cli.verbs.bundle import bundle_at
from cluster.errors import ControlPlaneError, ObservationError
from cluster.snapshot import Snapshot
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from controller.recording.bundle import RecordedCycle
from placement.budget import stopped
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.controlplane.commands import HOST
from simulator.packing.replay import gpu_milli_of, replay
from tests.controlplane import installation
from tests.controlplane.churned_pods import ChurnedPods, Object, pod_name
from tests.rigs.packing_churn import ChurningStream, mean_allocation_pct, operated

APPLIED_WITHIN_S = 60.0
CYCLES_WITHIN_S = 600.0
"""Time for the cycles to happen, seconds; quiet ones come every 30 s."""


def first_cycles(
    site: installation.Site, manifests: Sequence[Mapping[str, Any]], cycles: int
) -> Iterator[Mapping[str, object]]:
    """One record for each of the first cycles that see these objects, and one for what the services' status shows then.

    The objects are there before the operator starts, and running pods are where it once placed them. Raises
    ControlPlaneError.
    """
    with installation.marks_by_anybody(site):
        objects = list_of(manifests)
        installation.until(lambda: installation.is_applied(site, objects), "the objects are applied", APPLIED_WITHIN_S)
    with installation.operator_of(site) as (_, probes):
        address = f"http://{HOST}:{probes}"
        installation.until(
            lambda: len(_recorded(address)) >= cycles, f"{cycles} cycles are recorded", CYCLES_WITHIN_S, 2.0
        )
        yield from ({"cycle": n, **_figures(each)} for n, each in enumerate(_recorded(address)[:cycles], start=1))
        # The same figures from the services' status, as users see it.
        seen = [each.get("status", {}) for each in site.items("modelservices", "--all-namespaces")]
        gaps = [float(each["gap"]) for each in seen if "gap" in each]
        yield {
            "cycle": "status",
            "services": len(seen),
            "planned": len(gaps),
            "cost_per_hour": round(sum(float(each.get("costPerHour", 0.0)) for each in seen), 4),
            "widest_gap": round(max(gaps, default=0.0), 6),
        }


def _recorded(address: str) -> list[RecordedCycle]:
    """Recorded cycles with at least one service; one that repeats another exactly is counted in the bundle."""
    try:
        seen = [each for each in bundle_at(address, 30.0).cycles() if each.snapshot.services]
    except ObservationError as error:
        raise ControlPlaneError(str(error)) from error
    return [each for each in seen for _ in range(1 + each.entry.repeats)]


def _figures(cycle: RecordedCycle) -> Mapping[str, object]:
    """Figures of one recorded cycle. Gaps are fractions of the cost."""
    plan = cycle.guarded
    gaps = [each.certificate.gap for each in plan.services if each.certificate is not None]
    whole = plan.certificates.get("mix")
    return {
        "services": len(plan.services),
        "planned": len(gaps),
        "refused": sorted({each.refusal.code for each in plan.services if each.refusal is not None}),
        "cost_per_hour": round(sum(each.cost_per_hour for each in plan.services), 4),
        "gap": None if whole is None else round(whole.gap, 6),
        "widest_gap": round(max(gaps, default=0.0), 6),
        "plan_s": round(cycle.entry.stage_s.get("plan", 0.0), 3),
        "cut_short": sorted(reason.code for reason in plan.cut_short),
    }


def compared(trace: Snapshot, stream: ChurningStream, batch: int, seed: int) -> Iterable[tuple[str, float]]:
    """Mean allocation of the loop in this process, and of the replay of its policy alone, percent."""
    brain = InlineBrain(Decisions(awaits_pods=True), stopped)
    loop = operated(trace, stream.pods, brain, stopped, per_cycle=batch, stay=stream.stay)
    yield "loop in process", loop.mean_allocation_pct(stream.measured_from_pct)
    policy = policy_named("tonnage-learning", Knowledge(trace, seed=seed))
    packer = Packer(trace, policy, content_rank(trace, seed))
    played = replay(trace, stream.pods, packer, stopped, seed, stream.stay)
    yield "replay", mean_allocation_pct(played, stream)


async def churned(site: installation.Site, trace: Snapshot, stream: ChurningStream, batch: int, placer: str) -> float:
    """Mean allocation over the batches after the fill, percent of the fleet's GPUs."""
    capacity_milli, readings = 1000 * int(trace.nodes.gpus.sum()), []
    requested_milli = np.cumsum(gpu_milli_of(trace.pods)[1][stream.pods])
    async with installation.api_of(site) as api:
        cluster = ChurnedPods(api, trace, placer)
        for first in range(0, len(stream.pods), batch):
            positions = range(first, min(first + batch, len(stream.pods)))
            await cluster.delete([name for n in positions for name in cluster.leaving.pop(n, ())])
            placed = await cluster.arrive(positions, stream.pods)
            for n in positions:
                if pod_name(n) in placed:
                    cluster.leaving.setdefault(max(n + int(stream.stay[n]), positions[-1] + 1), []).append(pod_name(n))
            allocated_pct = 100.0 * cluster.gpu_milli / capacity_milli
            click.echo(f"{positions[-1] + 1}/{len(stream.pods)}: {allocated_pct:.2f} %", err=True)
            if 100.0 * requested_milli[positions[-1]] >= stream.measured_from_pct * capacity_milli:
                readings.append(allocated_pct)
    return float(np.mean(readings))


def list_of(objects: Iterable[Mapping[str, Any]]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": [*objects]}
