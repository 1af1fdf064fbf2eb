"""A real elastic job over gloo on the real control plane: it loses a node, goes on with fewer ranks, and grows back."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.nodes.node_objects import node_object
from simulator.controlplane.nodes.simulated_nodes import simulated_nodes
from tests.controlplane.auditor import audit
from tests.controlplane.elastic_rank import read, sample
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, pod, pod_spec
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

RANKS, LEAST = 8, 6
"""Nodes of the fleet, each with room for one rank; ranks below which the job does not run."""
HAS = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
T = TypeVar("T")


class Job:
    """The ranks' processes: one for each pod that runs, killed with its pod, or its node."""

    def __init__(self, kubectl: Kubectl, folder: Path, process: subprocess.Popen[str]) -> None:
        self._kubectl, self._folder, self._process = kubectl, folder, process
        self._pids: dict[str, int] = {}
        self.dark = set[str]()
        """Nodes without power, on which nothing runs, whatever the server says."""

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._kubectl.get("pods", "-l", "tonnage.dev/gang=train")["items"]
        return found

    def running(self) -> dict[str, str]:
        """Node of each pod that runs and is not ending."""
        whole = (each for each in self.pods() if not each["metadata"].get("deletionTimestamp"))
        runs = (each for each in whole if each["status"].get("phase") == "Running")
        return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in runs}

    def follow(self) -> None:
        """Starts and kills processes as kubelets would."""
        runs = {name: node for name, node in self.running().items() if node not in self.dark}
        for name in self._pids.keys() - runs.keys():
            self.kill(name)
        for name in runs.keys() - self._pids.keys():
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
            self._pids[name] = int(self._process.stdout.readline())

    def kill(self, name: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pids.pop(name), signal.SIGKILL)

    def trains_with(self, ranks: int) -> None:
        """Wait until so many ranks have learned from a hundred samples more."""
        begun = list[int]()

        def has_learned() -> bool:
            self.follow()
            saved = read(self._folder / "saved") or {"ranks": 0}
            if saved["ranks"] != ranks:
                begun.clear()
                return False
            begun.append(saved["samples"])
            return begun[-1] >= begun[0] + 100

        until(has_learned, f"{ranks} ranks train")

    def has_lost_nothing(self) -> bool:
        """Whether the parameters are those of each sample once, whoever took it."""
        saved = read(self._folder / "saved")
        learned = [sum(each) for each in zip(*map(sample, range(saved["samples"])), strict=True)]
        return bool(saved["weights"] == learned)


@contextmanager
def started(kubectl: Kubectl, folder: Path) -> Iterator[Job]:
    """A gang that runs with six to eight ranks, whose pods a ReplicaSet makes anew."""
    gang = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": {"name": "train"}}
    spec = {"minMembers": LEAST, "maxMembers": RANKS, "onMemberLoss": "Continue"}
    kubectl("create", "-f", "-", stdin={**gang, "spec": spec})
    labels = {"tonnage.dev/gang": "train"}
    soon = [
        {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
        for why in ("unreachable", "not-ready")
    ]
    spec = pod_spec(gpus=8, schedulerName="tonnage", tolerations=soon, terminationGracePeriodSeconds=1)
    template = {"metadata": {"labels": labels}, "spec": spec}
    replicas = {"replicas": RANKS, "selector": {"matchLabels": labels}, "template": template}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "train"}, "spec": replicas}
    kubectl("create", "-f", "-", stdin=owner)
    command = [sys.executable, "-m", "tests.controlplane.elastic_rank", str(folder)]
    with (folder / "ranks.err").open("wb") as errors, subprocess.Popen(  # noqa: S603
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:  # fmt: skip
        yield Job(kubectl, folder, process)  # whose end closes the pipe, which ends the ranks


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: `pip install torch` has this job train")
def test_a_gloo_job_that_loses_a_node_goes_on_with_fewer_ranks_and_grows_back(
    start_server: StartServer, programs: Programs, tmp_path: Path
) -> None:
    """Power of one node is cut, and comes back; later a pod of higher priority takes a node, and leaves it."""
    lease_s = 8  # a node counts as silent after 10 s
    server = start_server(ControlPlaneSettings(node_lifecycle=True, lease_s=lease_s))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    kubectl.wait("condition=Established", "crd/gangs.tonnage.dev")
    kubectl("create", "namespace", "tonnage-system")

    kubectl("create", "-f", "-", stdin={**CLASS, "metadata": {"name": "urgent"}, "value": 1000})
    urgent = pod("urgent", gpus=8, schedulerName="tonnage", priorityClassName="urgent", terminationGracePeriodSeconds=0)

    async def scene(job: Job) -> None:
        async def now(step: Callable[..., T], *given: Any) -> T:
            return await asyncio.to_thread(step, *given)

        nodes = [node_object(f"n{number}", {"nvidia.com/gpu.product": "NVIDIA-L4"}, HAS) for number in range(RANKS)]
        async with simulated_nodes(server.kubeconfig, nodes, lease_s=lease_s) as fleet:
            await now(job.trains_with, RANKS)
            before = await now(job.running)
            lost, node = sorted(before.items())[0]

            job.dark.add(node)
            fleet.silence(node)
            await now(job.trains_with, RANKS - 1)
            await now(until, lambda: lost not in job.running(), "the server knows that the pod is lost")
            await now(job.trains_with, RANKS - 1)
            assert (await now(job.running)).keys() == before.keys() - {lost}, "no other member was stopped"
            job.dark.remove(node)
            await fleet.revive(node)
            await now(job.trains_with, RANKS)

            before = await now(job.running)
            await now(partial(kubectl, "create", "-f", "-", stdin=urgent))
            await now(job.trains_with, RANKS - 1)
            assert (await now(job.running)).keys() < before.keys(), "one member was stopped, and no other"
            await now(kubectl, "delete", "pod", "urgent")
            await now(job.trains_with, RANKS)

    runs = operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}], interval_s=0.5)
    with runs, started(kubectl, tmp_path) as job:
        asyncio.run(scene(job))
        assert job.has_lost_nothing()
        found: Any = audit(kubectl)
        assert found.is_clean, found
