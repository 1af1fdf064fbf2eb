"""Deployments of a ModelService, one for each instance type of its mix, as data."""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import structlog

from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType, ModelService, on_capacity
from controller.api import labels
from controller.kube.cluster_view import SeenDeployment, SeenGpuType, SeenService
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Write
from controller.kube_world.cached_view import CachedView
from controller.objects.documents import map_of
from controller.placers import ModesOfServices, PlacementModes

FIELD_MANAGER = "tonnage"
CLAIM_NAME = "gpus"
"""Name of the claim of an instance's pods, and of its single request."""
LONGEST_NAME = 52
"""Maximum length of a Deployment's name: ReplicaSets append up to 11 characters to it, so that their names fit into a
label value (63), and pods up to 17."""


MOST_CONTENTS = 10_000
"""Number of content hashes that are remembered."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Instance:
    """Specification of one instance of a service."""

    service: ModelService
    seen: SeenService
    instance_type: InstanceType
    recognised: SeenGpuType
    placer: str
    """How pods are placed on nodes of this type: `bind`, `dra` or `gate`."""
    device_class: str = ""
    """DeviceClass of its devices; required for mode dra."""


def deployment_name(service: str, instance_type: InstanceType) -> str:
    """Name such as `chat-a100x4-spot` or `chat-decode-a100`; long ones are truncated and made unique by a hash.

    service: name without the namespace.
    """
    name = f"{service}-{instance_type.name.lower().replace('/', '-')}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def instance_label(kind: InstanceType) -> str:
    """Value of the label by which an InferencePool selects instances of a type, whose name may have a slash."""
    name = kind.name.replace("/", ".")
    return name if len(name) <= 63 else f"{name[:54]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def deployment_writes(instance: Instance, replicas: int, epoch: int) -> list[Write]:
    """Server-side apply of one Deployment, preceded by the claim template of its pods if they have claims.

    Tonnage manages only the fields in these writes. Templates are immutable: a changed one gets a new name; the service
    owns them.
    """
    namespace, _, service = instance.service.name.partition("/")
    query = {"fieldManager": FIELD_MANAGER, "force": "true"}

    def applied(api_version: str, kind: str, name: str, spec: Mapping[str, Any], **annotations: str) -> Write:
        metadata = {
            "name": name,
            "namespace": namespace,
            "labels": _labels(instance),
            "annotations": {**annotations, labels.EPOCH_ANNOTATION: str(epoch)},
            "ownerReferences": [_owner(instance)],
        }
        body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
        path = f"/apis/{api_version}/namespaces/{namespace}/{kind.lower()}s/{name}"
        return Write("PATCH", path, body, APPLY_PATCH, query)

    writes = []
    if _has_claim(instance):
        template = {"spec": _claim_spec(instance)}
        writes.append(applied("resource.k8s.io/v1", "ResourceClaimTemplate", _claim_template_name(instance), template))
    spec = {**_spec(instance), "replicas": replicas}
    name = deployment_name(service, instance.instance_type)
    writes.append(applied("apps/v1", "Deployment", name, spec, **{labels.CONTENT_ANNOTATION: content_of(instance)}))
    return writes


def content_of(instance: Instance) -> str:
    """Hash of a Deployment's content, without the number of replicas and the epoch."""
    content = [_labels(instance), _owner(instance), _spec(instance)]
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]


def _has_claim(instance: Instance) -> bool:
    """Whether its devices come from a ResourceClaim."""
    return instance.placer == "dra" and instance.instance_type.gpus > 0


def _claim_spec(instance: Instance) -> dict[str, Any]:
    """Claim of whole devices of one class. The node determines their GPU type."""
    exactly = {
        "deviceClassName": instance.device_class,
        "allocationMode": "ExactCount",
        "count": instance.instance_type.gpus,
    }
    return {"devices": {"requests": [{"name": CLAIM_NAME, "exactly": exactly}]}}


def _claim_template_name(instance: Instance) -> str:
    name = deployment_name(instance.service.name.partition("/")[2], instance.instance_type)
    content = msgspec.json.encode(_claim_spec(instance), order="sorted")
    return f"{name}-{hashlib.sha256(content).hexdigest()[:8]}"


def _labels(instance: Instance) -> dict[str, str]:
    kind = instance.instance_type
    own = {labels.SERVICE_LABEL: _written_name(instance), labels.GPU_TYPE_LABEL: kind.gpu_type}
    if instance.service.phase:
        own[labels.PHASE_LABEL] = instance.service.phase
    if kind.phase:
        own[labels.MODEL_LABEL] = kind.phase
    if kind.gpus != 1:
        own[labels.GPUS_LABEL] = str(kind.gpus)
    if kind.spot:
        own[labels.CAPACITY_LABEL] = "spot"
    return own


def _written_name(instance: Instance) -> str:
    """Name of the ModelService whose instance it is, also where it is in a pool of it."""
    return (instance.service.part_of or instance.service.name).partition("/")[2]


def _owner(instance: Instance) -> dict[str, Any]:
    """Owner reference, so that the Deployment is deleted with its service."""
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "ModelService",
        "name": _written_name(instance),
        "uid": instance.seen.uid,
        "controller": True,
    }


def _spec(instance: Instance) -> dict[str, Any]:
    """Spec of a Deployment without its replicas: the user's pod template, adapted to this GPU type and to placement
    by Tonnage."""
    written = instance.seen.template or {}
    metadata, spec, kind = map_of(written.get("metadata")), dict(map_of(written.get("spec"))), instance.instance_type
    first, *others = spec["containers"]
    if not kind.gpus:  # another program than the model's server
        first = {name: value for name, value in first.items() if name not in ("args", "command")}
    model = next((each.name for each in instance.service.models if each.pool == kind.phase), "")
    own_of = {"phase": instance.service.phase, "gpuType": kind.gpu_type, "model": model}
    for each in written.get("variants") or ():
        if all(each.get(key) in (None, own) for key, own in own_of.items()):
            first = _varied(first, each)
    if not kind.gpus:
        first = _varied(first, {"env": {"TONNAGE_CACHE_BYTES": str(instance.service.instance_memory_bytes)}})
    if kind.phase:
        first = _varied(first, {"env": {"TONNAGE_MODEL": model}})
    if adapters := instance.service.adapters:
        first = _varied(first, {"env": {"TONNAGE_ADAPTERS": " ".join(adapters)}})
        args = ([*adapters] if each == "$(TONNAGE_ADAPTERS)" else [each] for each in first.get("args") or ())
        first = {**first, "args": [each for some in args for each in some]}
    resources = _resources(instance, map_of(first.get("resources")))
    spec["containers"] = [{**first, "resources": resources}, *others]
    spec["affinity"] = _affinity(map_of(spec.get("affinity")), instance)
    if _has_claim(instance):
        claim = {"name": CLAIM_NAME, "resourceClaimTemplateName": _claim_template_name(instance)}
        spec["resourceClaims"] = [*_without(CLAIM_NAME, spec.get("resourceClaims", [])), claim]
    if instance.placer in ("bind", "dra"):
        spec["schedulerName"] = labels.SCHEDULER_NAME
    else:
        spec["schedulingGates"] = [
            *_without(labels.PLACEMENT_GATE, spec.get("schedulingGates", [])),
            {"name": labels.PLACEMENT_GATE},
        ]
    own = {**map_of(metadata.get("labels")), **_labels(instance)}
    if instance.service.routes is not None and instance.service.routes.picker:
        own[labels.INSTANCE_TYPE_LABEL] = instance_label(replace(kind, phase=instance.service.phase or kind.phase))
    made: dict[str, Any] = {"labels": own}
    if annotations := map_of(metadata.get("annotations")):
        made["annotations"] = dict(annotations)
    return {
        "selector": {"matchLabels": _labels(instance)},
        # A new pod must not wait for a GPU that an old one holds, because devices are scarce.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}},
        "template": {"metadata": made, "spec": spec},
    }


def _varied(container: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """The container with the image, arguments and environment of a variant of the template."""
    env = map_of(variant.get("env"))
    kept = [each for each in container.get("env") or () if each.get("name") not in env]
    changed = {
        "image": variant.get("image"),
        "args": [*(container.get("args") or ()), *more] if (more := variant.get("args")) else None,
        "env": [*kept, *({"name": name, "value": value} for name, value in sorted(env.items()))] if env else None,
    }
    return {**container, **{name: value for name, value in changed.items() if value is not None}}


def _resources(instance: Instance, written: Mapping[str, Any]) -> dict[str, Any]:
    """Resources of the first container with the devices, and with CPU and memory requests if it has none."""
    if not instance.instance_type.gpus:
        # A namespace with a quota of CPU asks that every container names it.
        own_bytes = {"cpu": "0", "memory": str(instance.service.instance_memory_bytes)}
        return {"requests": own_bytes, "limits": own_bytes}
    limits, requests = dict(map_of(written.get("limits"))), dict(map_of(written.get("requests")))
    own: dict[str, Any] = {}
    if _has_claim(instance):
        own["claims"] = [*_without(CLAIM_NAME, written.get("claims", [])), {"name": CLAIM_NAME}]
    else:
        limits[instance.recognised.resource] = str(instance.instance_type.gpus)
        requests[instance.recognised.resource] = str(instance.instance_type.gpus)
    if instance.service.instance_cpu_milli:
        requests.setdefault("cpu", f"{instance.service.instance_cpu_milli}m")
    if instance.service.instance_memory_bytes:
        requests.setdefault("memory", str(instance.service.instance_memory_bytes))
    return {**written, "limits": limits, "requests": requests, **own}


def _affinity(written: Mapping[str, Any], instance: Instance) -> dict[str, Any]:
    """Node affinity for this GPU type, added to every alternative of the template's affinity.

    A service that may use spot nodes has Deployments for both capacity types, each with its own affinity.
    """
    recognised = instance.recognised
    wanted = {"key": recognised.label, "operator": "In", "values": list(recognised.values)}
    alternatives = on_capacity((), spot=instance.instance_type.spot) if instance.service.spot else ((),)
    capacity = [
        [{"key": each.key, "operator": each.operator, "values": list(each.values)} for each in requirements]
        for requirements in alternatives
    ]
    node = dict(map_of(written.get("nodeAffinity")))
    required = map_of(node.get("requiredDuringSchedulingIgnoredDuringExecution"))
    terms: Sequence[Any] = required.get("nodeSelectorTerms") or [{}]
    narrowed = [
        {**term, "matchExpressions": [*term.get("matchExpressions", []), wanted, *more]}
        for term in terms
        for more in capacity
    ]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": narrowed}
    return {**written, "nodeAffinity": node}


def _without(name: str, named: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The entries of a list that have another name."""
    return (each for each in named if each.get("name") != name)


class Instances:
    """Specification of one instance of a service per instance type, from the last observation of the cluster."""

    def __init__(
        self,
        view: CachedView,
        modes: PlacementModes,
        device_classes: Mapping[str, str],
        hashed: Callable[[Instance], str] = content_of,
    ) -> None:
        """device_classes: DeviceClass for pools of mode dra, by extended resource name. hashed: content of a
        Deployment as a hash."""
        self._hashed = hashed
        self._view = view
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

    def observe(self, snapshot: Snapshot, deployments: Sequence[SeenDeployment]) -> dict[str, Mapping[str, str]]:
        """Update and return the placement modes of each service's instances."""
        of_type: dict[tuple[str, str], list[SeenDeployment]] = {}
        for each in deployments:
            of_type.setdefault((each.service, each.instance_type.gpu_type), []).append(each)

        def deployed(service: str, gpu_type: str, mode: str) -> int:
            """Instances in Deployments made for a placement mode; a Deployment scaled to none counts as one."""
            return sum(
                1 + each.replicas
                for each in of_type.get((service, gpu_type), ())
                if each.content == self.content(snapshot, service, each.instance_type, mode)
            )

        found = self._modes.of_services(snapshot, deployed)
        self._of_services = found
        return found

    def instance(
        self, snapshot: Snapshot, service: str, instance_type: InstanceType, mode: str | None = None
    ) -> Instance | None:
        """Instance of a type, to be placed in this mode, by default the last observed one; None without template, GPU
        type or mode."""
        if mode is None:
            mode = self._of_services.get(service, {}).get(instance_type.gpu_type, "")
        if self._by_name[0] is not snapshot.services:
            self._by_name = snapshot.services, {each.name: each for each in snapshot.services}
        known = self._by_name[1].get(service)
        seen, recognised = self._view.service(service), self._view.gpu_type(instance_type.gpu_type)
        if known is None or seen is None or recognised is None or seen.template is None or not mode:
            return None
        device_class = self._device_classes.get(recognised.resource, "")
        return Instance(known, seen, instance_type, recognised, mode, device_class)

    def content(
        self, snapshot: Snapshot, service: str, instance_type: InstanceType, mode: str | None = None
    ) -> str | None:
        """Content hash that a service's Deployment of a type should have; None if the instance is unknown."""
        instance = self.instance(snapshot, service, instance_type, mode)
        if instance is None:
            return None
        of_service = instance.service
        requested = of_service.spot, of_service.instance_cpu_milli, of_service.instance_memory_bytes
        own = (service, instance.seen.uid, of_service.routes, of_service.adapters, of_service.served, *requested)
        key = (*own, of_service.phase, instance_type, instance.recognised, instance.placer, instance.device_class)
        template, content = self._contents.get(key, (None, None))
        if template is instance.seen.template:
            return content
        try:
            content = self._hashed(instance)
        except Exception as error:  # noqa: BLE001 - one service must not stop the others
            content = None
            # Logged once per generation: every check accepted the template.
            if self._unusable.get(service) != instance.seen.generation:
                self._unusable[service] = instance.seen.generation
                log.error("the template of a service cannot be used", service=service, why=type(error).__name__)
        if len(self._contents) >= MOST_CONTENTS:
            self._contents.clear()
        self._contents[key] = (instance.seen.template, content)
        return content
