"""The operator as the chart installs it, on a real API server: its first cycles, and pods that come and go."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from benchmarks.cases import CONTROL_PLANE, DATA, Row, case, say
from simulator.openb.generator import generate, trace_of
from simulator.openb.trace_reader import read_trace
from tests.builders.many_services import GPUS_PER_NODE, definitions, fleet, services
from tests.builders.whole_gpu_pods import gpu_type_objects
from tests.controlplane import installation
from tests.controlplane.churned_pods import Object, node_objects
from tests.rigs.controlplane.operated import churned, compared, first_cycles, list_of
from tests.rigs.packing_churn import Churn, churning_stream

EXAMPLES = Path(__file__).parents[1] / "examples"


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
            site.kubectl("apply", "--server-side", "-f", "-", stdin=list_of(gpu_type_objects(trace.gpu_type_names)))
            # Lists have shares of GPUs, which the chart's pool does not place: its nodes may have another scheduler.
            overrides = {"pools": [{"placer": placer, **({"shares": True} if placer == "gate" else {})}]}
            say(f"settings: {installation.chart_settings() | overrides}")
            with installation.operator_of(site, overrides):
                allocated_pct = asyncio.run(churned(site, trace, stream, batch, placer))
        for name, pct in (("operator", allocated_pct), *compared(trace, stream, batch, seed)):
            yield {"measured": name, "load": load, "pods": len(stream.pods), "allocation_pct": round(pct, 2)}
