"""Fake view of the cluster: a snapshot, and pods as the watch last saw them."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.actions import Action
from cluster.plans import Reason
from cluster.quotas import NamespaceQuota
from cluster.snapshot import PENDING, Snapshot, device_numbers
from controller.kube.cluster_view import (
    SeenClaim,
    SeenDeployment,
    SeenGpuType,
    SeenNode,
    SeenPod,
    SeenRefusal,
    SeenService,
)
from controller.kube.sender import Applier
from controller.kube_world.cached_view import CachedView
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.world import HANDLERS, Handler, KubernetesWorld
from controller.placers import NO_CLAIMS, ClaimAllocator, NodePool
from tests.builders.leading import Leading, Unreported
from tests.clock import HandClock
from tests.unit.controller.kube.fake_writer import FakeWriter

A100 = SeenGpuType("nvidia.com/gpu.product", ("NVIDIA-A100-SXM4-80GB",), "nvidia.com/gpu")


@dataclass
class FakeClusterView(CachedView):
    now: Snapshot
    pods: dict[str, SeenPod] = field(default_factory=dict)
    services: dict[str, SeenService] = field(default_factory=dict)
    deployed: tuple[SeenDeployment, ...] = ()
    half_started: dict[str, float] = field(default_factory=dict)
    half_made: tuple[SeenClaim, ...] = ()
    waiting_for_claims: Mapping[str, Reason] = field(default_factory=dict)
    gpu_types: Mapping[str, SeenGpuType] = field(default_factory=lambda: {"A100": A100})
    nodes: dict[str, SeenNode] = field(default_factory=dict)
    refused: tuple[SeenRefusal, ...] = ()
    bounds: tuple[NamespaceQuota, ...] = ()
    labelled: frozenset[str] | None = None

    def managed(self) -> Collection[str] | None:
        return self.labelled

    def quotas(self) -> Iterable[NamespaceQuota]:
        return self.bounds

    def refused_by_kubelets(self) -> Iterable[SeenRefusal]:
        seen, self.refused = self.refused, ()
        return seen

    def snapshot(self, *, anew: bool = True) -> Snapshot:
        return self.now

    def pod(self, name: str) -> SeenPod | None:
        return self.pods.get(name)

    def service(self, name: str) -> SeenService | None:
        return self.services.get(name)

    def generations(self) -> Mapping[str, int]:
        return {name: each.generation for name, each in self.services.items()}

    def gpu_type(self, name: str) -> SeenGpuType | None:
        return self.gpu_types.get(name)

    def deployments(self) -> Iterable[SeenDeployment]:
        return self.deployed

    def half_started_since_s(self, gang: str) -> float | None:
        return self.half_started.get(gang)

    def half_made_claims(self) -> Iterable[SeenClaim]:
        return self.half_made

    def node(self, name: str) -> SeenNode | None:
        return self.nodes.get(name)

    def unallocated(self) -> Mapping[str, Reason]:
        return self.waiting_for_claims


def fake_view(snapshot: Snapshot) -> FakeClusterView:
    """The watch saw the pods just as the snapshot has them; those that are pending wait for `bind`."""
    pods = {}
    for row, name in enumerate(snapshot.pods.names):
        where = int(snapshot.pods.node[row])
        node = "" if where == PENDING else snapshot.nodes.names[where]
        devices = device_numbers(int(snapshot.pods.devices[row]))
        pods[name] = SeenPod(name, f"uid-{name}", "1", node, "tonnage", devices=devices)
    services = {s.name: SeenService(s.name, f"uid-{s.name}", 1, None) for s in snapshot.services}
    return FakeClusterView(snapshot, pods, services)


def kubernetes(
    view: CachedView,
    writer: FakeWriter,
    clock: HandClock | None = None,
    placer: str = "bind",
    claims: ClaimAllocator = NO_CLAIMS,
    device_classes: Mapping[str, str] | None = None,
    pools: Sequence[NodePool] = (),
    handlers: Mapping[type[Action], Handler] = HANDLERS,
) -> KubernetesWorld:
    """pools: left out, one for all nodes, of `placer`."""
    planning = PlanningView(
        view, pools or [NodePool(placer, {})], clock=clock or HandClock(), device_classes=device_classes
    )
    return KubernetesWorld(
        planning,
        Applier(writer, Leading()),
        asyncio.run,
        Unreported(3),
        claims=claims,
        handlers=handlers,
    )
