"""Binding compared: Tonnage and kube-scheduler on one API server."""

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cases import CONTROL_PLANE, Row, case
from simulator.controlplane.binaries import Programs, control_plane_programs, progress_on
from simulator.controlplane.commands import Folder
from simulator.controlplane.server import ControlPlane, down
from simulator.openb.generator import generate
from tests.builders.whole_gpu_pods import fitting, overload
from tests.controlplane import testbed
from tests.controlplane.schedulers import CONTENDERS
from tests.rigs.controlplane.backlog import backlog_round


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
