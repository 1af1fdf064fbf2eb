"""ResourceQuotas as far as they bound thousandths of GPUs, which Kubernetes itself does not count."""

from collections.abc import Iterable

import msgspec

from controller.api.labels import GPU_MILLI_ANNOTATION
from controller.api.quantity import quantity
from controller.kube.cache import Resource
from controller.kube.structs import Amount, Meta, Slim

MOST = 10**12
"""Largest quota that is told from none."""


class _Spec(Slim, frozen=True):
    hard: dict[str, Amount] = msgspec.field(default_factory=dict)


class ResourceQuota(Slim, frozen=True):
    """ResourceQuota (v1). Its scopes are not read: a quota of GPUs holds for all pods of its namespace."""

    metadata: Meta
    spec: _Spec = _Spec()


QUOTAS = Resource("quotas", "/api/v1/resourcequotas", ResourceQuota, is_optional=True)
"""Read where that is granted, so that an operator of a newer version works with the rights of an older chart."""


def most_gpu_milli(quotas: Iterable[ResourceQuota]) -> dict[str, int]:
    """Thousandths of GPUs that the pods of a namespace may hold, by namespace; of several quotas the smallest."""
    found: dict[str, int] = {}
    for each in quotas:
        if (written := each.spec.hard.get(GPU_MILLI_ANNOTATION)) is not None:
            namespace = each.metadata.namespace
            found[namespace] = min(found.get(namespace, MOST), _milli(written))
    return found


def _milli(written: Amount) -> int:
    """Whole thousandths; those that are more than any fleet has are as good as no quota."""
    try:
        return min(int(quantity(written)), MOST)
    except ValueError:
        return MOST
