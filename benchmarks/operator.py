"""The operator on a real API server: first cycles, churn, binding beside kube-scheduler, and a large cluster."""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.cases import CONTROL_PLANE, DATA, Row, case, say
from cluster.errors import ControlPlaneError
from simulator.controlplane.binaries import Programs, control_plane_programs, progress_on
from simulator.controlplane.commands import Folder
from simulator.controlplane.server import ControlPlane, down
from simulator.openb.generator import generate, trace_of
from simulator.openb.trace_reader import read_trace
from tests.builders.many_services import GPUS_PER_NODE, definitions, fleet, services
from tests.builders.whole_gpu_pods import fitting, gpu_type_objects, overload
from tests.controlplane import installation, testbed
from tests.controlplane.churned_pods import Object, node_objects
from tests.controlplane.health_taints import taints_s
from tests.controlplane.installation import operator_of, site_with
from tests.controlplane.schedulers import CONTENDERS
from tests.rigs.controlplane.backlog import backlog_round
from tests.rigs.controlplane.large_cluster import phases
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


@case(
    "binding",
    "Binds a second, CPU time and packing beside kube-scheduler; 4,000 waiting pods on 1,000 nodes.",
    quick={"nodes": 20, "pods": 40, "rounds": 1},
    needs=(CONTROL_PLANE,),
    by=("contender",),
    middle="median",
)
@case(
    "binding-overload",
    "The same for 110 % of the GPUs, also with kube-scheduler's bin packing.",
    given={"rounds": 1, "overload_share": 1.1, "contenders": tuple(CONTENDERS)},
    quick={"nodes": 20, "contenders": ("tonnage",)},
    needs=(CONTROL_PLANE,),
    by=("contender",),
    middle="median",
)
def binding(
    *,
    nodes: int = 1000,
    pods: int = 4000,
    rounds: int = 5,
    overload_share: float = 0.0,
    contenders: Sequence[str] = ("tonnage", "kube-scheduler"),
    seeds: Sequence[int] = (42,),
) -> Iterator[Row]:
    """A row for each round and scheduler, which alternate, so that drift affects both; on a control plane of its own.

    All pods are pending and observed before the scheduler leads; time runs from its Lease. Pods ask for one or two
    GPUs, or for so much of all GPUs that not all can run, where overload_share is given.
    """
    for seed in seeds:
        work = fitting(pods, seed)
        if overload_share:
            work = overload(generate(nodes, seed=seed).gpus, overload_share, seed)
        with control_plane(nodes, seed) as (server, programs):
            bare = testbed.without_kubelets(server, programs)
            for _ in range(rounds):
                for name in contenders:
                    yield asyncio.run(backlog_round(bare, programs, CONTENDERS[name], work))


@contextmanager
def control_plane(nodes: int, seed: int) -> Iterator[tuple[ControlPlane, Programs]]:
    """etcd and an API server with so many nodes and their kubelets. Raises ControlPlaneError."""
    programs = control_plane_programs(progress_on(sys.stderr))
    with tempfile.TemporaryDirectory(prefix="tonnage-binding-", ignore_cleanup_errors=True) as path:
        try:
            yield testbed.server_with(Folder(Path(path)), programs, nodes, seed), programs
        finally:
            down(Folder(Path(path)))


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
    yield {
        "verdicts": len(took_s),
        "p50_s": round(float(np.quantile(took_s, 0.5)), 2),
        "p95_s": round(float(np.quantile(took_s, 0.95)), 2),
        "max_s": round(max(took_s), 2),
    }
