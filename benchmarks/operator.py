"""The operator as the chart installs it, on a real API server: its first cycles, and pods that come and go."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.cases import CONTROL_PLANE, DATA, Row, case, say
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
from simulator.openb.generator import generate, trace_of
from simulator.openb.trace_reader import read_trace
from simulator.packing.replay import gpu_milli_of, replay
from tests.builders.many_services import GPUS_PER_NODE, definitions, fleet, services
from tests.builders.whole_gpu_pods import gpu_type_objects
from tests.controlplane import installation
from tests.controlplane.churned_pods import ChurnedPods, Object, node_objects, pod_name
from tests.rigs.packing_churn import Churn, ChurningStream, churning_stream, mean_allocation_pct, operated

EXAMPLES = Path(__file__).parents[1] / "examples"


APPLIED_WITHIN_S = 60.0
CYCLES_WITHIN_S = 600.0
"""Time for the cycles to happen, seconds; quiet ones come every 30 s."""


@case(
    "operator-first-cycles",
    "Gap to the cheapest mix in the installed operator's first cycles: the examples, and 20 services.",
    quick={"parts": ("services",), "count": 2, "nodes": 10, "cycles": 1},
    needs=(CONTROL_PLANE,),
)
def operator_first_cycles(
    *,
    parts: Sequence[str] = ("examples", "services"),
    count: int = 20,
    nodes: int = 1000,
    load: float = 0.4,
    cycles: int = 6,
    seeds: Sequence[int] = (42,),
) -> Iterator[Row]:
    """A row for each part and cycle: the repository's examples, and services on a fleet of five GPU types.

    count: of services, which need about `load` of the fleet of so many nodes of eight GPUs.
    """
    for seed in seeds:
        for part in parts:
            if part == "examples":
                machines: Iterable[Object] | str = (EXAMPLES / "nodes.yaml").read_text(encoding="utf-8")
                files = [path for path in sorted(EXAMPLES.glob("*.yaml")) if path.stem != "nodes"]
                texts = (path.read_text(encoding="utf-8") for path in files)
                documents = [document for text in texts for document in yaml.safe_load_all(text) if document]
                objects = [each for document in documents for each in document.get("items", [document])]
            else:
                machines, objects = fleet(nodes), [*definitions(), *services(count, nodes * GPUS_PER_NODE, seed, load)]
            with installation.site_with(machines) as site:
                yield from ({"part": part, **each} for each in first_cycles(site, objects, cycles))


@case(
    "operator-churn",
    "GPUs that the installed operator allocates while openb's pods come and go.",
    quick={"nodes": None, "fleet_nodes": 20, "batch": 20, "measured": 0.05},
    needs=(CONTROL_PLANE,),
)
def operator_churn(
    *,
    nodes: Path | None = DATA / "openb" / "openb_node_list_gpu_node.csv",
    pods: Path = DATA / "openb" / "openb_pod_list_default.csv",
    fleet_nodes: int = 1213,
    load: float = 1.0,
    measured: float = 0.1,
    batch: int = 200,
    placer: str = "gate",
    seeds: Sequence[int] = (42,),
) -> Iterator[Row]:
    """A row for the operator, its loop in one process, and the replay of its policy, on the same arrivals.

    A fleet is filled; then pods leave and as many arrive, `batch` at a time, for so many mean stays. A pod that has no
    place a few cycles after it arrived is deleted, as a replay drops it. Without nodes a fleet is generated.
    """
    for seed in seeds:
        trace = read_trace(nodes, pods) if nodes else trace_of(generate(fleet_nodes, seed=seed), {})
        stream = churning_stream(trace, seed, Churn(load, "exponential", 0.0, measured))
        with installation.site_with(node_objects(trace)) as site:
            site.kubectl("apply", "--server-side", "-f", "-", stdin=_list(gpu_type_objects(trace.gpu_type_names)))
            # Lists have shares of GPUs, which the chart's pool does not place: its nodes may have another scheduler.
            overrides = {"pools": [{"placer": placer, **({"shares": True} if placer == "gate" else {})}]}
            say(f"settings: {installation.chart_settings() | overrides}")
            with installation.operator_of(site, overrides):
                allocated_pct = asyncio.run(_churn(site, trace, stream, batch, placer))
        for name, pct in (("operator", allocated_pct), *compared(trace, stream, batch, seed)):
            yield {"measured": name, "load": load, "pods": len(stream.pods), "allocation_pct": round(pct, 2)}


def first_cycles(
    site: installation.Site, manifests: Sequence[Mapping[str, Any]], cycles: int
) -> Iterator[Mapping[str, object]]:
    """One record for each of the first cycles that see these objects, and one for what the services' status shows then.

    The objects are there before the operator starts, and running pods are where it once placed them. Raises
    ControlPlaneError.
    """
    with installation.marks_by_anybody(site):
        objects = _list(manifests)
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


async def _churn(site: installation.Site, trace: Snapshot, stream: ChurningStream, batch: int, placer: str) -> float:
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
            say(f"{positions[-1] + 1}/{len(stream.pods)}: {allocated_pct:.2f} %")
            if 100.0 * requested_milli[positions[-1]] >= stream.measured_from_pct * capacity_milli:
                readings.append(allocated_pct)
    return float(np.mean(readings))


def _list(objects: Iterable[Mapping[str, Any]]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": [*objects]}
