"""Instances of services: the placement mode and the content that their Deployments should have."""

from collections.abc import Mapping, Sequence

import structlog

from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType
from controller.kube.cluster_view import ClusterView, SeenDeployment
from controller.kube_world.deployments import Instance, content_of
from controller.placers.pool_affinity import DeployedInstances, ModesOfServices, PlacementModes

log = structlog.get_logger(__name__)


class Instances:
    """Specification of one instance of a service per instance type, from the last observation of the cluster."""

    def __init__(self, sightings: ClusterView, modes: PlacementModes, device_classes: Mapping[str, str]) -> None:
        """device_classes: DeviceClass for pools of mode dra, by extended resource name."""
        self._sightings = sightings
        self._modes = modes
        self._device_classes = device_classes
        self._of_services: ModesOfServices = {}
        """Placement modes of instances, from the last observation."""
        self._unusable: dict[str, int] = {}
        """Generation of each service whose unusable template was logged."""

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
        try:
            return content_of(instance) if instance else None
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
        known = next((each for each in snapshot.services if each.name == service), None)
        seen, recognised = self._sightings.service(service), self._sightings.gpu_type(instance_type.gpu_type)
        if known is None or seen is None or recognised is None or seen.template is None or not mode:
            return None
        device_class = self._device_classes.get(recognised.resource, "")
        return Instance(known, seen, instance_type, recognised, mode, device_class)
