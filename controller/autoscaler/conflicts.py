"""Conflicts: HorizontalPodAutoscalers that scale the target of a ScalingPolicy."""

from collections.abc import Iterable

from controller.api.scaling_policy import Target
from controller.kube.cache import Resource
from controller.kube.structs import Meta, Slim


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


def conflict_of(target: Target, namespace: str, hpas: Iterable[Hpa]) -> str:
    """Autoscaler with the same target, as `Kind/namespace/name`; empty: none.

    KEDA scales through an HPA that its ScaledObject owns; then that is named, which its users know. Versions of one API
    group are the same object.
    """
    wanted = (_group(target.api_version), target.kind, target.name)
    for hpa in sorted(hpas, key=lambda each: each.metadata.name):
        ref = hpa.spec.scale_target_ref
        if hpa.metadata.namespace == namespace and (_group(ref.api_version), ref.kind, ref.name) == wanted:
            keda = next((owner for owner in hpa.metadata.owner_references if owner.kind == "ScaledObject"), None)
            kind, name = ("HorizontalPodAutoscaler", hpa.metadata.name) if keda is None else (keda.kind, keda.name)
            return f"{kind}/{namespace}/{name}"
    return ""


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]
