"""Instances of services: the placement mode and the content that their Deployments should have."""

from collections.abc import Callable, Hashable, Mapping, Sequence

import structlog

from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType, ModelService
from controller.kube.cluster_view import ClusterView, SeenDeployment
from controller.kube_world.deployments import Instance, content_of
from controller.placers.pool_affinity import DeployedInstances, ModesOfServices, PlacementModes

log = structlog.get_logger(__name__)


MOST_CONTENTS = 10_000
"""Number of content hashes that are remembered."""


class Instances:
    """Specification of one instance of a service per instance type, from the last observation of the cluster."""

    def __init__(
        self,
        sightings: ClusterView,
        modes: PlacementModes,
        device_classes: Mapping[str, str],
        hashed: Callable[[Instance], str] = content_of,
    ) -> None:
        """device_classes: DeviceClass for pools of mode dra, by extended resource name. hashed: content of a
        Deployment as a hash."""
        self._hashed = hashed
        self._sightings = sightings
        self._modes = modes
        self._device_classes = device_classes
        self._of_services: ModesOfServices = {}
        """Placement modes of instances, from the last observation."""
        self._by_name: tuple[tuple[ModelService, ...], Mapping[str, ModelService]] = ((), {})
        self._unusable: dict[str, int] = {}
        """Generation of each service whose unusable template was logged."""
        self._contents: dict[Hashable, tuple[object, str | None]] = {}
        """(template, content hash made of it) by what else it is made of, while the template is the same object.

        Whoever may create Deployments decides how many say that they are of a service, and a template may have 1 MB.
        """

    def observe(self, snapshot: Snapshot, deployments: Sequence[SeenDeployment]) -> ModesOfServices:
        """Update and return the placement modes of each service's instances."""
        self._of_services = self._modes.of_services(snapshot, self._deployed(snapshot, deployments))
        return self._of_services

    def _deployed(self, snapshot: Snapshot, deployments: Sequence[SeenDeployment]) -> DeployedInstances:
        """Instances in Deployments made for a placement mode; a Deployment scaled to none counts as one."""
        of_type: dict[tuple[str, str], list[SeenDeployment]] = {}
        for each in deployments:
            of_type.setdefault((each.service, each.instance_type.gpu_type), []).append(each)

        def instances(service: str, gpu_type: str, mode: str) -> int:
            return sum(
                1 + each.replicas
                for each in of_type.get((service, gpu_type), ())
                if each.content == self._content(snapshot, service, each.instance_type, mode)
            )

        return instances

    def content(self, snapshot: Snapshot, service: str, instance_type: InstanceType) -> str | None:
        """Content hash that a service's Deployment of a type should have; None if the instance is unknown."""
        return self._content(snapshot, service, instance_type, self._mode(service, instance_type.gpu_type))

    def instance(self, snapshot: Snapshot, service: str, instance_type: InstanceType) -> Instance | None:
        """Instance of a type, with the last observed placement mode; None without template, GPU type or mode."""
        return self._instance(snapshot, service, instance_type, self._mode(service, instance_type.gpu_type))

    def _mode(self, service: str, gpu_type: str) -> str:
        return self._of_services.get(service, {}).get(gpu_type, "")

    def _content(self, snapshot: Snapshot, service: str, instance_type: InstanceType, mode: str) -> str | None:
        instance = self._instance(snapshot, service, instance_type, mode)
        if instance is None:
            return None
        own = (service, instance.seen.uid, instance.service.spot, *_resources(instance.service))
        key = (*own, instance_type, instance.recognised, mode, instance.device_class)
        template, content = self._contents.get(key, (None, None))
        if template is not instance.seen.template:
            content = self._computed(service, instance)
            if len(self._contents) >= MOST_CONTENTS:
                self._contents.clear()
            self._contents[key] = (instance.seen.template, content)
        return content

    def _computed(self, service: str, instance: Instance) -> str | None:
        try:
            return self._hashed(instance)
        except Exception as error:  # noqa: BLE001 - one service must not stop the others
            self._note_unusable(service, error)
            return None

    def _note_unusable(self, service: str, error: Exception) -> None:
        """Log once per generation of a service that its template, which every check accepted, is of no use."""
        seen = self._sightings.service(service)
        generation = seen.generation if seen else 0
        if self._unusable.get(service) != generation:
            self._unusable[service] = generation
            log.error("the template of a service cannot be used", service=service, why=type(error).__name__)

    def _instance(self, snapshot: Snapshot, service: str, instance_type: InstanceType, mode: str) -> Instance | None:
        """Instance of a type, to be placed in this mode."""
        if self._by_name[0] is not snapshot.services:
            self._by_name = snapshot.services, {each.name: each for each in snapshot.services}
        known = self._by_name[1].get(service)
        seen, recognised = self._sightings.service(service), self._sightings.gpu_type(instance_type.gpu_type)
        if known is None or seen is None or recognised is None or seen.template is None or not mode:
            return None
        device_class = self._device_classes.get(recognised.resource, "")
        return Instance(known, seen, instance_type, recognised, mode, device_class)


def _resources(service: ModelService) -> tuple[int, int]:
    """Parts of a service that its instances request."""
    return service.instance_cpu_milli, service.instance_memory_bytes
