"""Taints and tolerations one by one: the slow, clear check that the fast one is compared with."""

from cluster.nodes import NodeTaint
from cluster.workloads import Toleration


def tolerates_all(taints: tuple[NodeTaint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    """Whether every taint that keeps new pods away is tolerated. PreferNoSchedule keeps no pod away."""
    return all(
        taint.effect == "PreferNoSchedule" or any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def _tolerates(toleration: Toleration, taint: NodeTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value
