"""Pods that run agents: those with the label tonnage.dev/sandbox, watched apart from all others."""

import msgspec

from controller.api.labels import SANDBOX_LABEL
from controller.api.structs import Meta, Slim
from controller.kube.cache import Resource


class SandboxPodMeta(Meta, frozen=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class ContainerName(Slim, frozen=True):
    name: str


class SandboxPodSpec(Slim, frozen=True):
    node_name: str = ""
    containers: tuple[ContainerName, ...] = ()


class ContainerStatus(Slim, frozen=True):
    name: str
    container_id: str = msgspec.field(default="", name="containerID")


class SandboxPodStatus(Slim, frozen=True):
    phase: str = "Pending"
    container_statuses: tuple[ContainerStatus, ...] = ()


class SandboxPod(Slim, frozen=True):
    """v1 Pod, as far as isolation reads it."""

    metadata: SandboxPodMeta
    spec: SandboxPodSpec = SandboxPodSpec()
    status: SandboxPodStatus = SandboxPodStatus()

    def container_id(self, name: str | None) -> str:
        """Id of the container of this name, by default of the first; empty while it does not run."""
        wanted = name or (self.spec.containers[0].name if self.spec.containers else "")
        return next((each.container_id for each in self.status.container_statuses if each.name == wanted), "")


SANDBOX_PODS: Resource[SandboxPod] = Resource(
    "sandbox_pods", "/api/v1/pods", SandboxPod, selectors={"labelSelector": SANDBOX_LABEL}
)
