"""Conflicts: HorizontalPodAutoscalers that scale the target of a ScalingPolicy."""

from collections.abc import Iterable, Mapping

from controller.api.scaling_policy import Target
from controller.api.structs import Meta, Slim
from controller.kube.cache import Resource


class ScaleTargetRef(Slim, frozen=True):
    kind: str
    name: str
    api_version: str = ""


class HpaSpec(Slim, frozen=True):
    scale_target_ref: ScaleTargetRef


class Owner(Slim, frozen=True):
    kind: str
    name: str


class HpaMeta(Meta, frozen=True):
    owner_references: tuple[Owner, ...] = ()


class Hpa(Slim, frozen=True):
    """HorizontalPodAutoscaler (autoscaling/v2)."""

    metadata: HpaMeta
    spec: HpaSpec


HPAS = Resource("autoscalers", "/apis/autoscaling/v2/horizontalpodautoscalers", Hpa)


_Key = tuple[str, str, str, str]
"""Namespace, API group, kind and name of a target. Versions of one API group are the same object."""
Conflicts = Mapping[_Key, str]
"""Autoscaler of each target, as `Kind/namespace/name`."""


def conflicts_of(hpas: Iterable[Hpa]) -> Conflicts:
    """What these autoscalers scale; of several with one target the first by name.

    KEDA scales through an HPA that its ScaledObject owns; then that is named, which its users know.
    """
    found: dict[_Key, str] = {}
    for hpa in sorted(hpas, key=lambda each: each.metadata.name):
        ref = hpa.spec.scale_target_ref
        keda = next((owner for owner in hpa.metadata.owner_references if owner.kind == "ScaledObject"), None)
        kind, name = ("HorizontalPodAutoscaler", hpa.metadata.name) if keda is None else (keda.kind, keda.name)
        key = _key(hpa.metadata.namespace, ref.api_version, ref.kind, ref.name)
        found.setdefault(key, f"{kind}/{hpa.metadata.namespace}/{name}")
    return found


def conflict_of(target: Target, namespace: str, conflicts: Conflicts) -> str:
    """Autoscaler of a policy's target; empty: none."""
    return conflicts.get(_key(namespace, target.api_version, target.kind, target.name), "")


def _key(namespace: str, api_version: str, kind: str, name: str) -> _Key:
    return namespace, api_version.rpartition("/")[0], kind, name
