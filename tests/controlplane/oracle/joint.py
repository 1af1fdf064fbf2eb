"""Joint plans: the pods of a cluster are placed together, and kube-scheduler is asked about each placement in order."""

import io
import json
from dataclasses import dataclass, field

from cli.inputs.planning import Planning, planned
from cluster.actions import Bind, Evict
from controller.kube.connection import Connection
from tests.controlplane.oracle.kube_filters import KubeFilters, create_pods
from tests.controlplane.oracle.random_clusters import RandomCluster
from tests.controlplane.oracle.random_pods import Object
from tests.controlplane.testbed import pods_path


@dataclass(slots=True)
class Joint:
    """Placements of joint plans so far."""

    placed: int = 0
    later: int = 0
    """Placements that kube-scheduler allows only after others that the plan names later."""
    wrong: list[str] = field(default_factory=list)
    """Placements that it never allows, with its words."""


async def check_plan(filters: KubeFilters, cluster: RandomCluster, joint: Joint) -> None:
    """Plans the pods of a cluster together, and carries the plan out as far as kube-scheduler's filters allow it."""
    await filters.make(cluster)
    await create_pods(filters.api, cluster.pending)
    await filters.verdicts({pod.name: await filters.uid(pod.name) for pod in cluster.pending})
    waiting = {pod.name: pod for pod in cluster.pending}
    binds, evicted = placements(await filters.objects())
    joint.placed += len(binds)
    for name in (*waiting, *evicted):
        await _delete(filters.api, name)
    left, failed = list(binds.items()), dict[str, str]()
    while left:
        failed = {}
        for name, node in left:
            fresh = waiting[name]
            verdict = await filters.verdict(fresh)
            if node in verdict.allowed:
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                meta = fresh.object["metadata"]
                path = f"{pods_path(meta['namespace'])}/{meta['name']}"
                await filters.api.write("POST", f"{path}/binding", {"metadata": meta, "target": target})
            else:
                failed[name] = f"seed {cluster.seed}: {name} on {node}: {verdict.words}"
                await _delete(filters.api, name)
        if len(failed) == len(left):
            break
        joint.later += len(failed)
        left = [(name, node) for name, node in left if name in failed]
    joint.wrong += failed.values()
    await filters.clear()


def placements(objects: list[Object]) -> tuple[dict[str, str], list[str]]:
    """Node of each pod that `tonnage plan` places, in the order of its plan, and the pods that it stops for them."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    plan = planned(["-"], Planning(), io.StringIO(text)).plan
    actions = [step.action for phase in plan.phases for step in phase.steps]
    return (
        {action.pod: action.node for action in actions if isinstance(action, Bind)},
        [action.pod for action in actions if isinstance(action, Evict)],
    )


async def _delete(api: Connection, name: str) -> None:
    namespace, _, own = name.partition("/")
    await api.write("DELETE", f"{pods_path(namespace)}/{own}", {"gracePeriodSeconds": 0})
