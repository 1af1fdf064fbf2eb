"""The operator on a live cluster with hundreds of random pods: none may fail, and none may be stopped."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from controller.api.labels import CHOSEN_NODE_ANNOTATION, PLACEMENT_GATE, SCHEDULER_NAME
from controller.kube.connection import Connection, connect
from controller.kube.credentials import ApiAccess
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings, Folder
from simulator.controlplane.server import down, up
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import ROOT, operator
from tests.controlplane.oracle.kube_filters import KINDS, create_pods, make_volumes, put_lasting
from tests.controlplane.oracle.random_clusters import RandomCluster, random_cluster
from tests.controlplane.oracle.random_pods import NAMESPACES, Object, RandomPod
from tests.controlplane.testbed import items

STILL_FOR_S = 30.0
"""Nothing changed for so long: the operator has done what it will do. Longer than the deadline of a release."""
WITHIN_S = 400.0
RELEASE_DEADLINE_S = 10.0


@dataclass(slots=True)
class Live:
    """What became of the pods."""

    pods: int
    running: int = 0
    waiting: int = 0
    refused: int = 0
    """Pods that wait although Tonnage chose their node: kube-scheduler has not let them there."""
    failed: list[str] = field(default_factory=list)
    """Pods that a kubelet refused, with its words."""
    gone: list[str] = field(default_factory=list)
    """Pods that were stopped."""

    @property
    def holds(self) -> bool:
        return not self.failed and not self.gone


def live(programs: Programs, folder: Path, mode: str, *, seed: int, pods: int = 300, nodes: int = 40) -> Live:
    """Places these random pods in a placement mode, `bind` or `gate`, beside pods of kube-scheduler."""
    cluster = random_cluster(seed, pending=pods, nodes=nodes)
    manifests = folder / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(cluster.nodes), encoding="utf-8")
    server_folder = Folder(folder / "server")
    try:
        server = up(server_folder, ControlPlaneSettings(manifests=str(manifests)), programs)
        kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
        kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
        kubectl("create", "namespace", "tonnage-system")
        settings: dict[str, Any] = {"pools": [{"placer": mode}], "release_deadline_s": RELEASE_DEADLINE_S}
        asyncio.run(_begin(server.kubeconfig, cluster))
        with operator(server.kubeconfig, folder, **settings):
            return asyncio.run(_place(server.kubeconfig, cluster, mode))
    finally:
        down(server_folder, delete=True)


async def _begin(kubeconfig: Path, cluster: RandomCluster) -> None:
    """The cluster before: volumes, and pods that kube-scheduler places."""
    async with await connect(ApiAccess(kubeconfig=str(kubeconfig)), time.monotonic) as api:
        await put_lasting(api)
        await make_volumes(api, cluster.volumes)
        # All of one priority, so that nobody need be stopped for another.
        same = [pod for pod in cluster.running if "priorityClassName" not in pod.object["spec"]]
        strangers = [RandomPod(_without(pod.object, "nodeName"), ()) for pod in same]
        await create_pods(api, strangers)
        await _until_still(api)


async def _place(kubeconfig: Path, cluster: RandomCluster, mode: str) -> Live:
    async with await connect(ApiAccess(kubeconfig=str(kubeconfig)), time.monotonic) as api:
        before = await _pods(api)
        await create_pods(api, [RandomPod(_for_tonnage(pod.object, mode), ()) for pod in cluster.pending])
        after = await _until_still(api)
        wanted = {pod.name for pod in cluster.pending} | before.keys()
        found = Live(len(cluster.pending), gone=sorted(wanted - after.keys()))
        for name, pod in after.items():
            status, is_bound = pod["status"], "nodeName" in pod["spec"]
            if status["phase"] == "Failed":
                found.failed.append(f"{name}: {status.get('reason')}: {status.get('message')}")
            elif name not in before:
                found.running += is_bound
                found.waiting += not is_bound
                annotations = pod["metadata"].get("annotations", {})
                found.refused += not is_bound and CHOSEN_NODE_ANNOTATION in annotations
        return found


def _for_tonnage(pod: Object, mode: str) -> Object:
    """The pod as one that waits for Tonnage; of the same priority as all, so that nobody need be stopped for it."""
    spec = _without(pod, "priorityClassName")["spec"]
    if mode == "bind":
        return {**pod, "spec": {**spec, "schedulerName": SCHEDULER_NAME}}
    return {**pod, "spec": {**spec, "schedulingGates": [*spec.get("schedulingGates", ()), {"name": PLACEMENT_GATE}]}}


def _without(pod: Object, field_name: str) -> Object:
    return {**pod, "spec": {key: value for key, value in pod["spec"].items() if key != field_name}}


async def _pods(api: Connection) -> dict[str, Mapping[str, Any]]:
    return {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod
        for pod in await items(api, KINDS["Pod"][1])
        if pod["metadata"]["namespace"] in NAMESPACES
    }


async def _until_still(api: Connection) -> dict[str, Mapping[str, Any]]:
    """All pods, once none has changed its phase or node for a while."""
    over_at_s = time.monotonic() + WITHIN_S
    before, since_s = Counter[tuple[str, str, str]](), time.monotonic()
    while True:
        found = await _pods(api)
        now = Counter((name, pod["status"]["phase"], pod["spec"].get("nodeName", "")) for name, pod in found.items())
        if now != before:
            before, since_s = now, time.monotonic()
        if time.monotonic() > min(over_at_s, since_s + STILL_FOR_S):
            return found
        await asyncio.sleep(1.0)
